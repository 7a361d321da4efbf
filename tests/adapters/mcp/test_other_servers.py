"""Servers on another SDK, and the protocol's conformance suite, with the proxy and without."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import anyio
import pytest
from mcp import Client, StdioServerParameters

from tests.adapters.mcp.processes import free_port, serve_proxy, start

pytestmark = pytest.mark.slow


def find_package(name: str) -> tuple[str, Path]:
    """Return the path of Node.js and of a package's folder."""
    folder = Path(os.environ.get("POLICYGUARD_MCP_PACKAGES", "/nonexistent"))
    package = folder / "@modelcontextprotocol" / name
    if not package.is_dir():
        pytest.skip(f"@modelcontextprotocol/{name} is not in the folder POLICYGUARD_MCP_PACKAGES")
    own = folder / ".bin" / "node"
    return str(own) if own.exists() else "node", package


def behind_proxy(command: list[str]) -> StdioServerParameters:
    proxy = ["-m", "policyguard", "mcp", "--policy", "core", "--server", "other", "--"]
    return StdioServerParameters(command=sys.executable, args=[*proxy, *command])


CALLS: dict[str, list[tuple[str, dict[str, Any]]]] = {
    "server-everything": [
        ("echo", {"message": "hi"}),
        ("get-sum", {"a": 1, "b": 2}),
        ("get-structured-content", {"location": "New York"}),
        ("get-annotated-message", {"messageType": "error", "includeImage": True}),
        ("trigger-long-running-operation", {"duration": 1, "steps": 3}),
        ("get-tiny-image", {}),
        ("nope", {}),
    ],
    "server-filesystem": [
        ("list_directory", {"path": "$FOLDER"}),
        ("write_file", {"path": "$FOLDER/a.txt", "content": "text"}),
        ("read_text_file", {"path": "$FOLDER/a.txt"}),
        ("read_text_file", {"path": "$FOLDER/none.txt"}),
        ("read_text_file", {"path": "/etc/passwd"}),
    ],
}


@pytest.mark.parametrize("name", [*CALLS])
def test_a_server_on_the_typescript_sdk(name: str, tmp_path: Path) -> None:
    node, package = find_package(name)
    command = [node, str(package / "dist" / "index.js")]
    if name == "server-filesystem":
        command.append(str(tmp_path))

    async def observe(target: StdioServerParameters) -> Any:
        seen: list[Any] = []

        async def on_progress(done: float, total: float | None, text: str | None) -> None:
            seen.append((done, total, text))

        async with Client(target, mode="auto") as client:
            tools = (await client.list_tools()).tools
            for tool in tools:  # schemas that allow no further members get one for notes
                ((tool.output_schema or {}).get("properties") or {}).pop("policyguard", None)
                seen.append(tool.model_dump(mode="json", exclude_none=True))
            for tool, args in CALLS[name]:
                text = json.dumps(args).replace("$FOLDER", str(tmp_path))
                result = await client.call_tool(
                    tool, json.loads(text), progress_callback=on_progress
                )
                seen.append(result.model_dump(mode="json", exclude_none=True))
        (tmp_path / "a.txt").unlink(missing_ok=True)
        return seen

    direct = anyio.run(observe, StdioServerParameters(command=command[0], args=command[1:]))
    assert len(direct) > len(CALLS[name])
    assert anyio.run(observe, behind_proxy(command)) == direct


def test_the_conformance_suite(tmp_path: Path) -> None:
    """The suite gives the same result, but for foreign addresses, which the proxy refuses.

    Some scenarios fail now and then, as they race the server's requests: each has three tries.
    """
    node, package = find_package("conformance")
    suite = [node, str(package / "dist" / "index.js"), "server"]

    def print_results(address: str, *options: str) -> str:
        command = [*suite, "--url", address.replace("127.0.0.1", "localhost"), *options]
        return subprocess.run(command, capture_output=True, text=True, cwd=tmp_path).stdout

    def run(address: str) -> list[str]:
        printed = print_results(address)
        _, found, summary = printed.partition("=== SUMMARY ===")
        assert found, printed
        lines = [line for line in summary.splitlines() if line[:1] in ("✓", "✗")]
        return [
            f"✓{line[1:]}" if line[0] == "✗" and passes(address, line) else line
            for line in lines
            if "dns-rebinding" not in line
        ]

    def passes(address: str, line: str) -> bool:
        name = line.split()[1].rstrip(":")
        results = (print_results(address, "--scenario", name) for _ in range(2))
        return any(", 0 failed" in result for result in results)

    server = str(Path(__file__).with_name("conformance_server.py"))
    port = free_port()
    process = start([server, str(port)], port)
    address = f"http://127.0.0.1:{port}/mcp"
    try:
        direct = run(address)
        with serve_proxy("core", address) as proxied:
            found = run(proxied)
    finally:
        process.terminate()
        process.wait()
    assert [line[0] for line in found] == [line[0] for line in direct], (found, direct)
    assert sum(line.startswith("✓") for line in direct) > 12, direct
