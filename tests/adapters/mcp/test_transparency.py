"""What passes through the proxy: everything, over both transports, in both eras."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import anyio
import pytest
from mcp import StdioServerParameters

from tests.adapters.mcp.observed import MODERN, observe
from tests.adapters.mcp.processes import PROBE_SERVER, serve_proxy, stdio_proxy


@pytest.fixture
def http_proxy(http_server: str) -> Iterator[str]:
    """The address of a proxy in front of the probe server."""
    with serve_proxy("core", http_server) as address:
        yield address


def observe_now(target: str | StdioServerParameters, mode: str) -> dict[str, Any]:
    return anyio.run(observe, target, mode)


@pytest.mark.parametrize("mode", [pytest.param("legacy", marks=pytest.mark.slow), MODERN])
def test_stdio_passes_everything(mode: str) -> None:
    """The client sees the same through the proxy."""
    direct = StdioServerParameters(command=sys.executable, args=[PROBE_SERVER])
    assert observe_now(stdio_proxy("core"), mode) == observe_now(direct, mode)


@pytest.mark.parametrize("mode", ["legacy", pytest.param(MODERN, marks=pytest.mark.slow)])
def test_http_passes_everything(mode: str, http_server: str, http_proxy: str) -> None:
    """The client sees the same through the proxy."""
    seen = observe_now(http_proxy, mode)
    assert seen["parallel"]
    expected = observe_now(http_server, mode)
    assert _without_state(seen) == _without_state(expected)


def _without_state(seen: dict[str, Any]) -> dict[str, Any]:
    """Leave out what the first of two clients has changed in the server."""
    return {**seen, "tools": seen["tools"][:12], "cancel": "777" in seen["cancel"]}
