"""A policy with time limits, tools that get stuck, and a log of events."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any, TypeVar

from policyguard import Session
from policyguard.model.event import Event

EventType = TypeVar("EventType", bound=Event)
OpenSession = Callable[..., Session]

TIMEOUT = 30.0
"""Seconds until a test gives up waiting."""

POLICY = """
policyguard: 1
name: timeouts
limits:
  default: {{failures: {{max: {failures}}}}}
  tools:
    slow: {{timeout: 50ms}}
    quick: {{timeout: 1h}}
bounds: {{cleanup: {cleanup}}}
"""


class EventLog:
    """The events that a listener received, and a way to wait for more."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self._changed = threading.Condition()

    def __call__(self, event: Event) -> None:
        with self._changed:
            self.events.append(event)
            self._changed.notify_all()

    def of_type(self, kind: type[EventType]) -> list[EventType]:
        with self._changed:
            return [event for event in self.events if isinstance(event, kind)]

    def wait(self, kind: type[EventType], count: int = 1) -> list[EventType]:
        with self._changed:
            assert self._changed.wait_for(lambda: len(self.of_type(kind)) >= count, TIMEOUT), (
                self.events
            )
        return self.of_type(kind)


def make_stuck_tool(gate: threading.Event, result: object = "late") -> Callable[[], Any]:
    def tool() -> Any:
        assert gate.wait(TIMEOUT)
        if isinstance(result, BaseException):
            raise result
        return result

    return tool


def count_workers() -> int:
    return sum(thread.name.startswith("policyguard ") for thread in threading.enumerate())


def wait_for_workers(count: int) -> bool:
    """Wait until as many worker threads are left; return whether that happened."""
    deadline = time.monotonic() + TIMEOUT
    while count_workers() != count and time.monotonic() < deadline:
        time.sleep(0.001)
    return count_workers() == count
