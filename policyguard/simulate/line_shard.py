"""The part of a replay that one worker does: some sessions of files of our own format."""

from __future__ import annotations

from zlib import crc32

import msgspec

from policyguard.simulate.trace_player import IDLE_LINES
from policyguard.traces.formats.native import parse_head


class _ChildSession(msgspec.Struct):
    """A session that another has spawned: whose it is, and the line that it last had."""

    worker: int
    parent: str
    last_line: int = 0


class LineShard:
    """Which lines are for this worker, the `number`th (from 0) `of` several, or the only one.

    A session goes where its id says, and one that another session has spawned goes where that one
    does. Every worker walks through all lines, so that `line` (from 1) is the same for all.
    `several`: the file has lines of more than one session. `bytes` counts what was for this worker;
    `whole`: that is all.
    """

    def __init__(self, index: int = 0, count: int = 1) -> None:
        self.index = index
        self.line = 0
        self.bytes_read = 0
        self.has_several_sessions = False
        self._first_session: str | None = None
        self._last_assignment = ("", -1)
        self._swept_line = 0
        self.is_whole = count == 1
        self._count = count
        self._children: dict[str, _ChildSession] = {}

    def begin(self, *, whole: bool = False) -> None:
        """A file begins, or files that are read as one; with `whole` all of it is this worker's."""
        self.is_whole = whole or self._count == 1
        self.line = 0
        self.has_several_sessions = False
        self._first_session = None
        self._last_assignment = ("", -1)
        self._swept_line = 0
        self._children.clear()

    def __call__(self, line: bytes) -> bool:
        """Whether a line is for this worker. What is no event is for the first."""
        self.line += 1
        if not self.is_whole and self._assign_worker(line) != self.index:
            return False
        self.bytes_read += len(line)
        return True

    def _assign_worker(self, line: bytes) -> int:
        told = parse_head(line)
        if told is None:
            return 0
        session = told.session
        last, worker = self._last_assignment
        if session == last and not told.parent:
            return worker  # most lines follow one of their own session
        self._last_assignment = ("", -1)
        if session != self._first_session:
            self.has_several_sessions = self._first_session is not None
            self._first_session = self._first_session or session
        if self.line - self._swept_line >= IDLE_LINES:
            self._drop_idle()
        known = self._children.get(session)
        if known is None:
            if not told.parent:
                worker = self._worker_of(session)
                self._last_assignment = (session, worker)
                return worker
            known = _ChildSession(self._worker_of(told.parent), told.parent)
            self._children[session] = known
        self._touch(known)
        if told.event == "closed":
            del self._children[session]
        return known.worker

    def _worker_of(self, session: str) -> int:
        known = self._children.get(session)
        if known is not None:
            return known.worker
        return crc32(session.encode("utf-8", "surrogatepass")) % self._count

    def _touch(self, known: _ChildSession | None) -> None:
        """A session has said something, and with it those above it have."""
        while known is not None and known.last_line != self.line:
            known.last_line = self.line
            known = self._children.get(known.parent)

    def _drop_idle(self) -> None:
        """Sessions that have said nothing for so long are over."""
        self._swept_line = self.line
        self._children = {
            session: known
            for session, known in self._children.items()
            if self.line - known.last_line <= IDLE_LINES
        }
