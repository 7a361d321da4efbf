"""The part of a replay that one worker does: some sessions of files of our own format."""

from __future__ import annotations

from zlib import crc32

import msgspec

from policyguard.simulate.player import IDLE
from policyguard.traces.native import head


class _Spawned(msgspec.Struct):
    """A session that another has spawned: whose it is, and the line that it last had."""

    worker: int
    parent: str
    last: int = 0


class Part:
    """Which lines are for this worker, the `number`th (from 0) `of` several, or the only one.

    A session goes where its id says, and one that another session has spawned goes where that one
    does. Every worker walks through all lines, so that `line` (from 1) is the same for all.
    `several`: the file has lines of more than one session. `bytes` counts what was for this worker;
    `whole`: that is all.
    """

    def __init__(self, number: int = 0, of: int = 1) -> None:
        self.number = number
        self.line = 0
        self.bytes = 0
        self.several = False
        self._first: str | None = None
        self._last = ("", -1)
        self._swept = 0
        self.whole = of == 1
        self._of = of
        self._spawned: dict[str, _Spawned] = {}

    def begin(self, *, whole: bool = False) -> None:
        """A file begins, or files that are read as one; with `whole` all of it is this worker's."""
        self.whole = whole or self._of == 1
        self.line = 0
        self.several = False
        self._first = None
        self._last = ("", -1)
        self._swept = 0
        self._spawned.clear()

    def __call__(self, line: bytes) -> bool:
        """Whether a line is for this worker. What is no event is for the first."""
        self.line += 1
        if not self.whole and self._worker(line) != self.number:
            return False
        self.bytes += len(line)
        return True

    def _worker(self, line: bytes) -> int:
        told = head(line)
        if told is None:
            return 0
        session = told.session
        last, worker = self._last
        if session == last and not told.parent:
            return worker  # most lines follow one of their own session
        self._last = ("", -1)
        if session != self._first:
            self.several = self._first is not None
            self._first = self._first or session
        if self.line - self._swept >= IDLE:
            self._forget()
        known = self._spawned.get(session)
        if known is None:
            if not told.parent:
                worker = self._home(session)
                self._last = (session, worker)
                return worker
            known = _Spawned(self._home(told.parent), told.parent)
            self._spawned[session] = known
        self._touch(known)
        if told.event == "closed":
            del self._spawned[session]
        return known.worker

    def _home(self, session: str) -> int:
        known = self._spawned.get(session)
        if known is not None:
            return known.worker
        return crc32(session.encode("utf-8", "surrogatepass")) % self._of

    def _touch(self, known: _Spawned | None) -> None:
        """A session has said something, and with it those above it have."""
        while known is not None and known.last != self.line:
            known.last = self.line
            known = self._spawned.get(known.parent)

    def _forget(self) -> None:
        """Sessions that have said nothing for so long are over."""
        self._swept = self.line
        self._spawned = {
            session: known
            for session, known in self._spawned.items()
            if self.line - known.last <= IDLE
        }
