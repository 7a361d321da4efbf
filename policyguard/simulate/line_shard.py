"""The lines of files in our own format that one worker replays."""

from __future__ import annotations

from zlib import crc32

import msgspec

from policyguard.simulate.trace_player import IDLE_LINES
from policyguard.traces.formats.native import parse_head


class _ChildSession(msgspec.Struct):
    """A session with a parent or a source, and the number of its last line."""

    worker: int
    parent: str
    last_line: int = 0


class LineShard:
    """A filter for the lines of one worker: number `index` (from 0) of `count`.

    The source of a converted session decides the worker, else its id, so that one worker has all
    sessions of a source; a session with a parent goes where its parent goes. Every
    worker sees all lines, so `line` (from 1) is the same for all. `bytes_read` counts this
    worker's lines, which are all lines if `is_whole`.
    """

    def __init__(self, index: int = 0, count: int = 1) -> None:
        self.index = index
        self.line = 0
        self.bytes_read = 0
        self.has_several_sessions = False
        self._first_session: str | None = None
        self._last_assignment: tuple[str | None, int] = (None, 0)
        self._swept_line = 0
        self.is_whole = count == 1
        self._count = count
        self._children: dict[str, _ChildSession] = {}

    def begin(self, *, whole: bool = False) -> None:
        """Start a file, or files that are read as one; with `whole`, this worker takes it all."""
        self.is_whole = whole or self._count == 1
        self.line = 0
        self.has_several_sessions = False
        self._first_session = None
        self._last_assignment = (None, 0)
        self._swept_line = 0
        self._children.clear()

    def __call__(self, line: bytes) -> bool:
        """Return whether a line is for this worker; lines that are not events go to the first."""
        self.line += 1
        if not self.is_whole and self._assign_worker(line) != self.index:
            return False
        self.bytes_read += len(line)
        return True

    def _assign_worker(self, line: bytes) -> int:
        head = parse_head(line)
        if head is None:
            return 0
        session = head.session
        last, worker = self._last_assignment
        if session == last and not head.parent:
            return worker  # most lines follow a line of the same session
        self._last_assignment = (None, 0)
        if session != self._first_session:
            self.has_several_sessions = self._first_session is not None
            self._first_session = self._first_session or session
        if self.line - self._swept_line >= IDLE_LINES:
            self._drop_idle()
        child = self._children.get(session)
        if child is None:
            if not head.parent and not head.source:
                worker = self._worker_of(session)
                self._last_assignment = (session, worker)
                return worker
            worker = self._worker_of(head.parent) if head.parent else self._hash(head.source)
            child = _ChildSession(worker, head.parent)
            self._children[session] = child
        self._touch(child)
        if head.event == "closed":
            del self._children[session]
        return child.worker

    def _worker_of(self, session: str) -> int:
        child = self._children.get(session)
        if child is not None:
            return child.worker
        return self._hash(session)

    def _hash(self, name: str) -> int:
        return crc32(name.encode("utf-8", "surrogatepass")) % self._count

    def _touch(self, child: _ChildSession | None) -> None:
        """Note that a session and its ancestors are active."""
        while child is not None and child.last_line != self.line:
            child.last_line = self.line
            child = self._children.get(child.parent)

    def _drop_idle(self) -> None:
        """Forget sessions without a line for so long that they are over."""
        self._swept_line = self.line
        self._children = {
            session: child
            for session, child in self._children.items()
            if self.line - child.last_line <= IDLE_LINES
        }
