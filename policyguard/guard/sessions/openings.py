"""Lets one thread at a time open a session, without the guard's lock."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec

from policyguard.store.errors import SessionBusyError

_Thread = tuple[int, int]
"""A process and a thread: after a fork the threads of the parent are gone."""


class _Opening(msgspec.Struct):
    """Which thread opens a session, and how many of its claims are not released yet."""

    thread: _Thread
    claims: int = 0


class SessionOpenings:
    """Which threads open which sessions. `lock` is the guard's, which waiting releases."""

    def __init__(self, lock: threading.RLock) -> None:
        self._changed = threading.Condition(lock)
        self._openings: dict[str, _Opening] = {}
        self._awaited: dict[_Thread, str] = {}

    @contextmanager
    def claim(self, id_: str) -> Iterator[None]:
        """Be the one thread that opens a session, after the others that do. Claims nest."""
        with self._changed:
            self.wait(id_)
            opening = self._openings.setdefault(id_, _Opening(_this_thread()))
            opening.claims += 1
        try:
            yield
        finally:
            with self._changed:
                opening.claims -= 1
                if not opening.claims:
                    self._openings.pop(id_, None)
                    self._changed.notify_all()

    def wait(self, id_: str) -> None:
        """Wait until no other thread opens a session. To be called under the guard's lock.

        `SessionBusyError` if that thread waits for this one: their sessions are each other's
        ancestors.
        """
        this = _this_thread()
        while (opening := self._openings.get(id_)) is not None and opening.thread != this:
            if opening.thread[0] != this[0]:
                del self._openings[id_]
                return
            if self._is_awaiting(opening.thread, this):
                raise SessionBusyError(
                    Path(id_), "another thread is opening the session", "try again"
                )
            self._awaited[this] = id_
            try:
                self._changed.wait()
            finally:
                del self._awaited[this]

    def _is_awaiting(self, thread: _Thread, this: _Thread) -> bool:
        """Whether a thread waits, directly or not, for what this one opens."""
        while thread != this:
            opening = self._openings.get(self._awaited.get(thread, ""))
            if opening is None:
                return False
            thread = opening.thread
        return True


def _this_thread() -> _Thread:
    return os.getpid(), threading.get_ident()
