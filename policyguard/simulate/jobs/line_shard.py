"""The lines of files in our own format that one worker replays."""

from __future__ import annotations

from collections import Counter
from zlib import crc32

import msgspec

from policyguard.model.event import SessionEnded
from policyguard.simulate.sessions.trace_player import IDLE_LINES
from policyguard.traces.formats.native import EventHead, is_event, parse_head

_END = SessionEnded.__struct_config__.tag
_REMEMBERED = 100_000
"""Ended sessions whose worker is remembered, as a sample has their later sub-agents with them."""


class _OpenSession(msgspec.Struct):
    """A session that is not over, and the number of its last line or of a descendant's."""

    worker: int
    parent: _OpenSession | None
    last_line: int = 0


class LineShard:
    """A filter for the lines of one worker: number `index` (from 0) of `count`.

    The source of a converted session decides the worker, else its id, so that one worker has all
    sessions of a source; a session with a parent goes where its parent goes. What its first line
    says counts as long as it is open, as in a replay. Every worker sees all lines, so `line` (from
    1) is the same for all. `bytes_read` counts this worker's lines, which are all lines if
    `is_whole`.
    """

    def __init__(self, index: int = 0, count: int = 1) -> None:
        self.index = index
        self.line = 0
        self.bytes_read = 0
        self._by_source = False
        self._session_counts: Counter[str] = Counter()
        self._latest_name: str | None = None
        self._latest: _OpenSession | None = None
        self._is_latest_own = False
        self._swept_line = 0
        self.is_whole = count == 1
        self._count = count
        self._sessions: dict[str, _OpenSession] = {}
        self._ended: dict[str, int] = {}

    def begin(self, *, whole: bool = False, by_source: bool = False) -> None:
        """Start a file, or files that are read as one; with `whole`, this worker takes it all.

        With `by_source`, sessions of converted recordings are counted by their sources.
        """
        self.is_whole = whole or self._count == 1
        self.line = 0
        self._by_source = by_source
        self._session_counts.clear()
        self._latest_name = self._latest = None
        self._swept_line = 0
        self._sessions.clear()
        self._ended.clear()

    def __call__(self, line: bytes) -> bool:
        """Return whether a line is for this worker; lines that are not events go to the first."""
        self.line += 1
        if not self.is_whole:
            head = parse_head(line)
            if head is not None and head.session == self._latest_name and head.event != _END:
                is_own = self._is_latest_own  # most lines follow a line of the same session
            else:
                self._leave_latest(self.line - 1)
                is_own = self._find_worker(head, line) == self.index
            if not is_own:
                return False
        self.bytes_read += len(line)
        return True

    def has_several_sessions(self, source: str) -> bool:
        """Return whether a file that workers share has several sessions (of a source) so far."""
        return self._session_counts[source if self._by_source else ""] > 1

    def _find_worker(self, head: EventHead | None, line: bytes) -> int:
        if head is None:
            return 0
        name = head.session
        if self.line - self._swept_line >= IDLE_LINES:
            self._drop_idle()
        session = self._sessions.get(name)
        is_new = session is None or self._is_over(session)
        if (is_new or head.event == _END) and not is_event(line):
            return 0  # a replay neither opens nor closes a session with such a line
        if session is None or is_new:
            if session is not None:
                self._end(name)
            session = self._sessions[name] = self._open(head)
        self._latest_name, self._latest = name, session
        self._is_latest_own = session.worker == self.index
        if head.event == _END:
            self._leave_latest(self.line)
            self._end(name)
        return session.worker

    def _open(self, head: EventHead) -> _OpenSession:
        self._session_counts[head.source if self._by_source else ""] += 1
        parent = self._sessions.get(head.parent) if head.parent else None
        if parent is not None:
            return _OpenSession(parent.worker, None if self._is_over(parent) else parent)
        worker = self._ended.get(head.parent or head.session)
        if worker is None:
            worker = self._hash(head.source or head.parent or head.session)
        return _OpenSession(worker, None)

    def _end(self, name: str) -> None:
        worker = self._sessions.pop(name).worker
        self._ended.pop(name, None)
        if worker != self._hash(name):
            self._ended[name] = worker
            if len(self._ended) > _REMEMBERED:
                del self._ended[next(iter(self._ended))]

    def _is_over(self, session: _OpenSession) -> bool:
        return self.line - session.last_line > IDLE_LINES

    def _hash(self, name: str) -> int:
        return crc32(name.encode("utf-8", "surrogatepass")) % self._count

    def _leave_latest(self, line: int) -> None:
        """Note that the latest session, and so its ancestors, had this line as its last."""
        session, self._latest_name, self._latest = self._latest, None, None
        while session is not None and session.last_line < line:
            session.last_line = line
            session = session.parent

    def _drop_idle(self) -> None:
        """Forget sessions without a line for so long that they are over."""
        self._swept_line = self.line
        over = [name for name, session in self._sessions.items() if self._is_over(session)]
        for name in over:
            self._end(name)
