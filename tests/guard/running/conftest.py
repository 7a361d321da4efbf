"""A session under a policy with time limits, and what its listener is told."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from policyguard import Guard, Session
from tests.guard.running.time_limits import POLICY, Open, Told


@pytest.fixture
def told() -> Told:
    return Told()


@pytest.fixture
def gate() -> Iterator[threading.Event]:
    """What stuck functions wait for; it opens at the end of the test at the latest."""
    event = threading.Event()
    yield event
    event.set()


@pytest.fixture
def opened(tmp_path: Path, told: Told) -> Open:
    def session(more: str = "", *, cleanup: str = "1h", **given: Any) -> Session:
        file = tmp_path / "policy.yaml"
        file.write_text(POLICY % cleanup + more)
        return Guard.load(file, listener=told, **given).session("a")

    return session


@pytest.fixture
def session(opened: Open) -> Session:
    return opened()
