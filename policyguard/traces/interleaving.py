"""The files of session trees, read as one trace in the order of their times."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from heapq import heappop, heappush
from pathlib import Path

import msgspec

from policyguard.model.event import Event, SessionEnded
from policyguard.traces.item import Item, Skipped
from policyguard.traces.reader import Reader, TraceFile
from policyguard.traces.session_trees import SessionTree

MAX_OPEN_FILES = 128
"""Files open at once; systems allow a process some hundreds."""


class _Member(msgspec.Struct):
    """A file, its next item and the time of that item (ns since 1970).

    `session_names` maps the ids of its open sessions to unique ones.
    """

    path: Path
    depth: int
    children: list[int] = []
    trace: TraceFile | None = None
    next_item: Item | None = None
    position: int = 0
    next_at: int = 0
    is_timed: bool = True
    has_begun: bool = False
    session_names: dict[str, str] = {}

    def advance(self) -> None:
        """Read the next item; without a time, or with an earlier one, it keeps the last time."""
        item = self.next_item = next(self.trace.items, None) if self.trace is not None else None
        if self.is_timed and item is not None and not isinstance(item, Skipped):
            self.next_at = max(self.next_at, item.at or 0)


class FileEnded(SessionEnded, frozen=True):
    """The end of a session's file, in which the session was still open: no event of a recording."""


class InterleavedFiles:
    """The items of a session tree's files in the order of their times; can be iterated once.

    A file keeps its own order and is opened when its first event is due. Of two files the earlier
    event comes first, at equal times the sub-agent's. All of a file that begins without a time, or
    whose parent does, follows its parent's first event; all of a file that would exceed
    `MAX_OPEN_FILES` follows the event before its first. A session whose id is open in another
    file becomes `id#n` in the `n`th file (from 1). `on_open` is called with each opened file.

    Of joined trees, a first file without a time follows the beginning of the one before it; the
    sessions of one without sub-agents in other files end with it, by a `FileEnded`.

    `trace`, `file_index` (in the tree) and `position` (from 1) locate the last item.
    """

    def __init__(
        self,
        reader: Reader,
        files: Sequence[Path],
        tree: SessionTree,
        on_open: Callable[[TraceFile], None] = lambda trace: None,
    ) -> None:
        self._reader = reader
        self._on_open = on_open
        self._open_sessions: dict[str, int] = {}
        self._open_files = 0
        self._queue: list[tuple[int, int, int]] = []
        self._members: list[_Member] = []
        self._roots = [place for place, parent in enumerate(tree.parents) if parent < 0]
        for child, (index, parent) in enumerate(zip(tree.indices, tree.parents, strict=True)):
            depth = 0
            if parent >= 0:
                depth = self._members[parent].depth + 1
                self._members[parent].children.append(child)
            self._members.append(_Member(files[index], depth))
        self.file_index = self.position = 0
        self.trace = TraceFile(self._members[0].path, None, iter(()))

    def __iter__(self) -> Iterator[Item]:
        self._enqueue_roots()
        while self._queue:
            index = heappop(self._queue)[2]
            member = self._members[index]
            if member.trace is None:
                member.trace = self._reader.read(member.path)
                self._on_open(member.trace)
                member.is_timed = member.is_timed and self._open_files < MAX_OPEN_FILES
                self._open_files += 1
                member.advance()
            item = member.next_item
            if item is not None:
                member.position += 1
                self.file_index, self.position, self.trace = index, member.position, member.trace
                if isinstance(item, Skipped):
                    yield item
                else:
                    yield self._with_unique_session(item, member, index)
            if not member.has_begun and not isinstance(item, Skipped):
                member.has_begun = True
                member.is_timed = member.is_timed and item is not None and item.at is not None
                for child in member.children:
                    self._schedule_child(self._members[child], member)
                    self._enqueue(child)
            if item is None:
                self._open_files -= 1
                if len(self._roots) > 1 and not (member.depth or member.children):
                    yield from self._end_sessions(member, index)
            else:
                member.advance()
                self._enqueue(index)

    def _enqueue_roots(self) -> None:
        at = 0
        for root in self._roots:
            member = self._members[root]
            if len(self._roots) > 1:
                first_at = _first_event_time(member.path)
                member.is_timed = first_at is not None
                at = member.next_at = at if first_at is None else first_at
            self._enqueue(root)

    def _enqueue(self, index: int) -> None:
        member = self._members[index]
        heappush(self._queue, (member.next_at, -member.depth, index))

    def _schedule_child(self, member: _Member, parent: _Member) -> None:
        first_at = _first_event_time(member.path) if parent.is_timed else None
        member.is_timed = first_at is not None
        member.next_at = parent.next_at if first_at is None else first_at

    def _with_unique_session(self, event: Event, member: _Member, index: int) -> Event:
        session = event.session
        name = member.session_names.get(session)
        if name is None:
            is_taken = self._open_sessions.setdefault(session, index) != index
            name = member.session_names[session] = f"{session}#{index + 1}" if is_taken else session
        if isinstance(event, SessionEnded):
            del member.session_names[session]
            if name == session:
                del self._open_sessions[session]
        return event if name == session else msgspec.structs.replace(event, session=name)

    def _end_sessions(self, member: _Member, index: int) -> Iterator[FileEnded]:
        for session, name in member.session_names.items():
            if self._open_sessions.get(session) == index:
                del self._open_sessions[session]
            yield FileEnded(name)
        member.session_names = {}


def _first_event_time(path: Path) -> int | None:
    return next((item.at for item in Reader().read(path) if not isinstance(item, Skipped)), None)
