"""A policy with time limits, functions that get stuck, and what a listener is told."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any, TypeVar

from policyguard import Session
from policyguard.model.event import Event

E = TypeVar("E", bound=Event)
Open = Callable[..., Session]

PATIENCE = 30.0
"""Seconds until a test gives up on what must happen."""

POLICY = """
policyguard: 1
name: timeouts
limits:
  default: {failures: {max: 2}}
  tools:
    slow: {timeout: 50ms}
    quick: {timeout: 1h}
bounds: {cleanup: %s}
"""


class Told:
    """What the guard's listener was told, and a way to wait for it."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self._more = threading.Condition()

    def __call__(self, event: Event) -> None:
        with self._more:
            self.events.append(event)
            self._more.notify_all()

    def of(self, kind: type[E]) -> list[E]:
        with self._more:
            return [event for event in self.events if isinstance(event, kind)]

    def wait(self, kind: type[E], count: int = 1) -> list[E]:
        with self._more:
            assert self._more.wait_for(lambda: len(self.of(kind)) >= count, PATIENCE), self.events
        return self.of(kind)


def stuck(gate: threading.Event, result: object = "late") -> Callable[[], Any]:
    def fn() -> Any:
        assert gate.wait(PATIENCE)
        if isinstance(result, BaseException):
            raise result
        return result

    return fn


def workers() -> int:
    return sum(thread.name.startswith("policyguard ") for thread in threading.enumerate())


def workers_become(count: int) -> bool:
    """Wait for threads that have given their result to be gone."""
    until = time.monotonic() + PATIENCE
    while workers() != count and time.monotonic() < until:
        time.sleep(0.001)
    return workers() == count
