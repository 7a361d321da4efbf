"""A session under a policy with time limits, and a log of its events."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from policyguard import Guard, Session
from tests.guard.running.time_limits import POLICY, EventLog, OpenSession


@pytest.fixture
def log() -> EventLog:
    return EventLog()


@pytest.fixture
def gate() -> Iterator[threading.Event]:
    """An event that blocks stuck tools; it is set at the end of the test."""
    event = threading.Event()
    yield event
    event.set()


@pytest.fixture
def open_session(tmp_path: Path, log: EventLog) -> OpenSession:
    def session(
        extra: str = "", *, cleanup: str = "1h", failures: int = 2, **options: Any
    ) -> Session:
        file = tmp_path / "policy.yaml"
        file.write_text(POLICY.format(cleanup=cleanup, failures=failures) + extra)
        return Guard.load(file, listener=log, **options).session("a")

    return session


@pytest.fixture
def session(open_session: OpenSession) -> Session:
    return open_session()
