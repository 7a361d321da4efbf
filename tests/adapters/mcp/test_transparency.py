"""What passes through the proxy: everything, over both transports, in both eras."""

from __future__ import annotations

import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anyio
import pytest
from mcp import StdioServerParameters

from tests.adapters.mcp.observed import MODERN, observe

SERVER = str(Path(__file__).with_name("probe_server.py"))
PROXY = ["-m", "policyguard", "mcp"]

eras = pytest.mark.parametrize("mode", ["legacy", MODERN])


def free_port() -> int:
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


@pytest.fixture
def http_server() -> Iterator[str]:
    """The address of a probe server of its own."""
    port = free_port()
    process = start([SERVER, str(port)], port)
    yield f"http://127.0.0.1:{port}/mcp"
    process.terminate()
    process.wait()


@pytest.fixture
def http_proxy(http_server: str) -> Iterator[str]:
    """The address of a proxy in front of it."""
    port = free_port()
    options = ["serve", "--policy", "core", "--port", str(port), "--upstream"]
    process = start([*PROXY, *options, f"probe={http_server}"], port)
    yield f"http://127.0.0.1:{port}/probe"
    process.terminate()
    assert process.wait() == 0


def observe_now(target: str | StdioServerParameters, mode: str) -> dict[str, Any]:
    return anyio.run(observe, target, mode)


@eras
def test_stdio_passes_everything(mode: str) -> None:
    """The client sees the same through the proxy."""
    direct = StdioServerParameters(command=sys.executable, args=[SERVER])
    command = [*PROXY, "--policy", "core", "--server", "probe", "--", sys.executable, SERVER]
    proxied = StdioServerParameters(command=sys.executable, args=command)
    assert observe_now(proxied, mode) == observe_now(direct, mode)


@eras
def test_http_passes_everything(mode: str, http_server: str, http_proxy: str) -> None:
    """The client sees the same through the proxy."""
    seen = observe_now(http_proxy, mode)
    assert seen["parallel"]
    expected = observe_now(http_server, mode)
    assert _without_state(seen) == _without_state(expected)


def _without_state(seen: dict[str, Any]) -> dict[str, Any]:
    """Leave out what the first of two clients has changed in the server."""
    return {**seen, "tools": seen["tools"][:12], "cancel": "777" in seen["cancel"]}
