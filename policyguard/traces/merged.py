"""The files of a family as one: what happened in all of them, in the order of the times."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from heapq import heappop, heappush
from pathlib import Path

import msgspec

from policyguard.model.event import Closed, Event
from policyguard.traces.family import Family
from policyguard.traces.item import Item, Skipped
from policyguard.traces.reader import Reader, TraceFile

MOST = 128
"""Files that are open at once: a system lets a process have some hundreds."""


class _Member(msgspec.Struct):
    """One of the files, the `next` item of it, and the `time` of that: nanoseconds since 1970.

    `begun`: it has given an event. `names` are what its open sessions are called.
    """

    path: Path
    depth: int
    below: list[int] = []
    trace: TraceFile | None = None
    next: Item | None = None
    place: int = 0
    time: int = 0
    timed: bool = True
    begun: bool = False
    names: dict[str, str] = {}

    def advance(self) -> None:
        """Look at the next item. A time that is missing, or runs backwards, is the one before."""
        item = self.next = next(self.trace.items, None) if self.trace is not None else None
        if self.timed and item is not None and not isinstance(item, Skipped):
            self.time = max(self.time, item.at or 0)


class Merged:
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
        family: Family,
        opened: Callable[[TraceFile], None] = lambda trace: None,
    ) -> None:
        self._reader = reader
        self._opened = opened
        self._open: dict[str, int] = {}
        self._reading = 0
        self._queue: list[tuple[int, int, int]] = []
        self._members: list[_Member] = []
        for which, (place, above) in enumerate(zip(family.places, family.above, strict=True)):
            depth = 0
            if above >= 0:
                depth = self._members[above].depth + 1
                self._members[above].below.append(which)
            self._members.append(_Member(files[place], depth))
        self.member = self.place = 0
        self.trace = TraceFile(self._members[0].path, None, iter(()))

    def __iter__(self) -> Iterator[Item]:
        self._wait(0)
        while self._queue:
            which = heappop(self._queue)[2]
            member = self._members[which]
            if member.trace is None:
                member.trace = self._reader.read(member.path)
                self._opened(member.trace)
                member.timed = member.timed and self._reading < MOST
                self._reading += 1
                member.advance()
            item = member.next
            if item is not None:
                member.place += 1
                self.member, self.place, self.trace = which, member.place, member.trace
                yield item if isinstance(item, Skipped) else self._named(item, member, which)
            if not member.begun and not isinstance(item, Skipped):
                member.begun = True
                member.timed = member.timed and item is not None and item.at is not None
                for child in member.below:
                    self._spawn(self._members[child], member)
                    self._wait(child)
            if item is None:
                self._reading -= 1
            else:
                member.advance()
                self._wait(which)

    def _wait(self, which: int) -> None:
        member = self._members[which]
        heappush(self._queue, (member.time, -member.depth, which))

    def _spawn(self, member: _Member, above: _Member) -> None:
        begins = _begins(member.path) if above.timed else None
        member.timed = begins is not None
        member.time = above.time if begins is None else begins

    def _named(self, event: Event, member: _Member, which: int) -> Event:
        session = event.session
        name = member.names.get(session)
        if name is None:
            other = self._open.setdefault(session, which) != which
            name = member.names[session] = f"{session}#{which + 1}" if other else session
        if isinstance(event, Closed):
            del member.names[session]
            if name == session:
                del self._open[session]
        return event if name == session else msgspec.structs.replace(event, session=name)


def _begins(path: Path) -> int | None:
    """The time of a file's first event."""
    return next((item.at for item in Reader().read(path) if not isinstance(item, Skipped)), None)
