"""Servers and proxies in processes of their own."""

from __future__ import annotations

import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from mcp import StdioServerParameters

from tests.kept_policies import keep_compiled

PROBE_SERVER = str(Path(__file__).with_name("probe_server.py"))
PROXY = ["-m", "policyguard", "mcp"]


def free_port() -> int:
    """Return a port that nothing listens on."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


def start(command: list[str], port: int) -> subprocess.Popen[bytes]:
    """Start a server, and wait until it listens."""
    process = subprocess.Popen([sys.executable, *command])
    while True:
        assert process.poll() is None, f"{command} has ended"
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
        except OSError:
            time.sleep(0.05)
        else:
            return process


@contextmanager
def serve_probe() -> Iterator[str]:
    """Run a probe server over HTTP; its address."""
    port = free_port()
    process = start([PROBE_SERVER, str(port)], port)
    try:
        yield f"http://127.0.0.1:{port}/mcp"
    finally:
        process.terminate()
        process.wait()


@contextmanager
def serve_proxy(policy: str, upstream: str, *options: str) -> Iterator[str]:
    """Run a proxy over HTTP in front of a server called `probe`; its address."""
    keep_compiled(policy)
    port = free_port()
    command = [*PROXY, "serve", "--policy", policy, "--port", str(port), *options]
    process = start([*command, "--upstream", f"probe={upstream}"], port)
    try:
        yield f"http://127.0.0.1:{port}/probe"
    finally:
        process.terminate()
        assert process.wait() == 0


def stdio_proxy(policy: str) -> StdioServerParameters:
    """Return how to start a proxy on stdio in front of the probe server."""
    keep_compiled(policy)
    command = [*PROXY, "--policy", policy, "--server", "probe", "--", sys.executable, PROBE_SERVER]
    return StdioServerParameters(command=sys.executable, args=command)
