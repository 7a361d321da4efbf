"""The log of what a server does again and again."""

from __future__ import annotations

import pytest

from policyguard.adapters.mcp.bounded_log import BoundedLog


def test_many_warnings_become_a_count(caplog: pytest.LogCaptureFixture) -> None:
    log = BoundedLog()
    for _ in range(1234):
        log.warn("dropped a line")
    log.warn("dropped a response")
    said = [record.getMessage() for record in caplog.records]
    counts = [f"dropped a line ({count} times so far)" for count in (10, 100, 1000)]
    assert said == ["dropped a line"] * 3 + counts + ["dropped a response"]
