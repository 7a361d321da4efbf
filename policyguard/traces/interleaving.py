"""The files of a family as one: what happened in all of them, in the order of the times."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from heapq import heappop, heappush
from pathlib import Path

import msgspec

from policyguard.model.event import Closed, Event
from policyguard.traces.item import Item, Skipped
from policyguard.traces.reader import Reader, TraceFile
from policyguard.traces.session_trees import SessionTree

MAX_OPEN_FILES = 128
"""Files that are open at once: a system lets a process have some hundreds."""


class _Member(msgspec.Struct):
    """One of the files, the `next` item of it, and the `time` of that: nanoseconds since 1970.

    `begun`: it has given an event. `names` are what its open sessions are called.
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
        """Look at the next item. A time that is missing, or runs backwards, is the one before."""
        item = self.next_item = next(self.trace.items, None) if self.trace is not None else None
        if self.is_timed and item is not None and not isinstance(item, Skipped):
            self.next_at = max(self.next_at, item.at or 0)


class InterleavedFiles:
    """Reads the files of a family, each opened when its time has come: to be iterated once.

    A file keeps its own order; among files the earlier event goes first, at the same time that of
    the sub-agent. Of a file that begins without a time, or below one that does, all follows the
    first event of the one above; where `MOST` are open, all of the next one follows the event
    before its first. A session whose id is another file's, which has it open, is
    `id#n` in the `n`th file (from 1). `opened` is told each file as it is opened.

    `trace`, `member` (its number in the family) and `place` (from 1) say where the item stands
    that was given last.
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
        for which, (place, above) in enumerate(zip(tree.indices, tree.parents, strict=True)):
            depth = 0
            if above >= 0:
                depth = self._members[above].depth + 1
                self._members[above].children.append(which)
            self._members.append(_Member(files[place], depth))
        self.file_index = self.position = 0
        self.trace = TraceFile(self._members[0].path, None, iter(()))

    def __iter__(self) -> Iterator[Item]:
        self._enqueue(0)
        while self._queue:
            which = heappop(self._queue)[2]
            member = self._members[which]
            if member.trace is None:
                member.trace = self._reader.read(member.path)
                self._on_open(member.trace)
                member.is_timed = member.is_timed and self._open_files < MAX_OPEN_FILES
                self._open_files += 1
                member.advance()
            item = member.next_item
            if item is not None:
                member.position += 1
                self.file_index, self.position, self.trace = which, member.position, member.trace
                yield (
                    item
                    if isinstance(item, Skipped)
                    else self._with_unique_session(item, member, which)
                )
            if not member.has_begun and not isinstance(item, Skipped):
                member.has_begun = True
                member.is_timed = member.is_timed and item is not None and item.at is not None
                for child in member.children:
                    self._schedule_child(self._members[child], member)
                    self._enqueue(child)
            if item is None:
                self._open_files -= 1
            else:
                member.advance()
                self._enqueue(which)

    def _enqueue(self, which: int) -> None:
        member = self._members[which]
        heappush(self._queue, (member.next_at, -member.depth, which))

    def _schedule_child(self, member: _Member, parent: _Member) -> None:
        begins = _first_event_time(member.path) if parent.is_timed else None
        member.is_timed = begins is not None
        member.next_at = parent.next_at if begins is None else begins

    def _with_unique_session(self, event: Event, member: _Member, which: int) -> Event:
        session = event.session
        name = member.session_names.get(session)
        if name is None:
            other = self._open_sessions.setdefault(session, which) != which
            name = member.session_names[session] = f"{session}#{which + 1}" if other else session
        if isinstance(event, Closed):
            del member.session_names[session]
            if name == session:
                del self._open_sessions[session]
        return event if name == session else msgspec.structs.replace(event, session=name)


def _first_event_time(path: Path) -> int | None:
    """The time of a file's first event."""
    return next((item.at for item in Reader().read(path) if not isinstance(item, Skipped)), None)
