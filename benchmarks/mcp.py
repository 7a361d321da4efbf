"""A tool's call through the MCP proxy beside the same call without it.

    python -m benchmarks.mcp [--quick]

A client and a server of the SDK, over stdio and HTTP, in both eras of the protocol, with `core`.
Blocks of calls take turns in one run; what the proxy adds is the difference of the blocks of one
turn. All processes share the machine, so on a busy one all figures grow.
"""

from __future__ import annotations

import argparse
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from itertools import count

from anyio.from_thread import BlockingPortal, start_blocking_portal
from mcp import Client, StdioServerParameters
from mcp.server.mcpserver import MCPServer

from benchmarks.measure import Block, Figures, Measurements, Report, Spread, interleave, table

SIZE = 20
MODULE = [sys.executable, "-m", "benchmarks.mcp", "--serve"]
PROXY = [sys.executable, "-m", "policyguard", "mcp"]
ERAS = {"sessions": "legacy", "no sessions": "2026-07-28"}


def serve(port: int) -> None:
    """Serve one tool: on stdio, or on a port."""
    server = MCPServer("bench", log_level="CRITICAL")

    @server.tool()
    async def echo(text: str) -> str:
        return text

    if port:
        server.run("streamable-http", host="127.0.0.1", port=port)
    else:
        server.run("stdio")


@contextmanager
def running(command: list[str], port: int) -> Iterator[None]:
    """Run a server, from when it listens."""
    process = subprocess.Popen(command, stderr=subprocess.DEVNULL)
    try:
        while True:
            try:
                socket.create_connection(("127.0.0.1", port), 1).close()
                break
            except OSError:
                time.sleep(0.05)
        yield
    finally:
        process.terminate()
        process.wait()


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


def time_calls(portal: BlockingPortal, client: Client) -> Block:
    """Return a block of calls, each with an argument of its own: it is no repeat."""
    numbers = count()

    async def run() -> float:
        start = time.perf_counter()
        for _ in range(SIZE):
            result = await client.call_tool("echo", {"text": f"call {next(numbers)}"})
            assert not result.is_error
        return (time.perf_counter() - start) * 1e3 / SIZE

    def block(_: int) -> Figures:
        return {"call": portal.call(run)}

    return block


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="fewer rounds")
    parser.add_argument("--serve", nargs="?", const=0, type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve is not None:
        serve(options.serve)
        return
    rounds = 25 if options.quick else 100
    with ExitStack() as stack:
        port, front = free_port(), free_port()
        address = f"http://127.0.0.1:{port}/mcp"
        stack.enter_context(running([*MODULE, str(port)], port))
        proxy = [*PROXY, "serve", "--policy", "core", "--port", str(front)]
        stack.enter_context(running([*proxy, "--upstream", f"bench={address}"], front))
        stdio = [*PROXY, "--policy", "core", "--server", "bench", "--", *MODULE]
        targets: Mapping[str, str | StdioServerParameters] = {
            "stdio, direct": StdioServerParameters(command=MODULE[0], args=MODULE[1:]),
            "stdio, proxied": StdioServerParameters(command=stdio[0], args=stdio[1:]),
            "HTTP, direct": address,
            "HTTP, proxied": f"http://127.0.0.1:{front}/bench",
        }
        portal = stack.enter_context(start_blocking_portal())
        blocks: dict[str, Block] = {}
        for era, mode in ERAS.items():
            for name, target in targets.items():
                client = stack.enter_context(
                    portal.wrap_async_context_manager(Client(target, mode=mode))
                )
                blocks[f"{name}, {era}"] = time_calls(portal, client)
        results = interleave(blocks, rounds, warm=5)
    report = Report("mcp", "A call through the MCP proxy")
    report.add(f"Medians over {rounds} blocks of {SIZE} calls in ms, quartiles in brackets.")
    rows = [row(results, transport, era) for transport in ("stdio", "HTTP") for era in ERAS]
    report.add(table(["transport", "era", "direct", "proxied", "added"], rows))
    report.spreads(results)
    report.write()


def row(results: Measurements, transport: str, era: str) -> list[object]:
    direct, proxied = (f"{transport}, {which}, {era}" for which in ("direct", "proxied"))
    pairs = zip(results.blocks[proxied], results.blocks[direct], strict=True)
    added = Spread.of(one["call"] - two["call"] for one, two in pairs)
    figures = [results.spread(which, "call") for which in (direct, proxied)]
    return [transport, era, *figures, added]


if __name__ == "__main__":
    main()
