"""Servers for the tests of the proxy."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.adapters.mcp.processes import serve_probe


@pytest.fixture
def http_server() -> Iterator[str]:
    """The address of a probe server of its own."""
    with serve_probe() as address:
        yield address
