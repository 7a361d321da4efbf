"""Trace files → recorded sessions, each played to its end under one policy or two."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence

from policyguard.model.event import Admitted, Approved, Closed, Completed, Event, Refused, Started
from policyguard.simulate.errors import Order
from policyguard.simulate.run import Run
from policyguard.simulate.side import Side
from policyguard.traces import Item, Skipped, TraceFile

IDLE = 100_000
"""Entries of its file after which a session that has said nothing is over. What comes later under
its id is another session: nothing can be remembered for ever."""
_OFTEN = 256
"""Entries after which `heed` is called."""

Where = Callable[[int], tuple[TraceFile, Order]]
"""The file in which the latest item stands, and its order in the replay, told its place."""


class Player:
    """Plays files, one after the other. `events` counts what it has read.

    `heed` is called every now and then between two events, and may raise to stop: the sessions
    that are open then are given by `cut`. `see` is told the tool of each call. `begun` counts, of
    what was played last, the sessions of each file (its number in their order).
    """

    def __init__(
        self,
        sides: Sequence[Side],
        *,
        timelines: bool = True,
        heed: Callable[[], None] | None = None,
        see: Callable[[str], None] | None = None,
    ) -> None:
        self._sides = sides
        self._timelines = timelines
        self._heed = heed
        self._see = see
        self._open: dict[str, Run] = {}
        self.events = 0
        self.begun: Counter[Order] = Counter()

    def play(
        self,
        items: Iterable[Item],
        where: Where,
        skipped: Callable[[Skipped, int], None],
        line: Callable[[], int] | None = None,
    ) -> Iterator[Run]:
        """The sessions of a file, or of several that are read as one, as they end.

        The last end with the file. `skipped` is told what was passed over, and its place. `line`
        tells the line of an item, where some are left out; else items are counted.
        """
        runs, heed, see = self._open, self._heed, self._see
        counted = place = 0
        self.begun.clear()
        pause, swept = _OFTEN, IDLE
        for item in items:
            counted += 1
            if counted == pause:
                pause += _OFTEN
                if heed is not None:
                    heed()
                if place > swept:
                    swept = place + IDLE
                    for idle in [run for run in runs.values() if place - run.last > IDLE]:
                        yield self._ended(idle)
            place = counted if line is None else line()
            if isinstance(item, Skipped):
                skipped(item, place)
                continue
            self.events += 1
            run = runs.get(item.session)
            if run is None:
                run = self._begin(item, where, place)
            elif place - run.last > IDLE:
                yield self._ended(run)
                run = self._begin(item, where, place)
            run.last = place
            if run.parent is not None:
                run.parent.touch(place)
            kind = item.__class__
            if kind is Completed:
                run.result(item)  # type: ignore[arg-type]  # its class has been looked at
            elif kind is Admitted or kind is Refused:
                if see is not None:
                    see(item.tool)  # type: ignore[union-attr]  # its class has been looked at
                run.call(item)  # type: ignore[arg-type]  # its class has been looked at
            elif isinstance(item, Closed):
                if item.success is not None:
                    run.success = item.success
                yield self._ended(run)
            elif not isinstance(item, Started | Approved):  # in a replay nobody answers
                run.other(item)
        yield from self.cut()

    def cut(self) -> Iterator[Run]:
        """The sessions that are still open: what there is of them."""
        for run in list(self._open.values()):
            yield self._ended(run)

    def _begin(self, event: Event, where: Where, place: int) -> Run:
        trace, order = where(place)
        self.begun[order[:-1]] += 1
        started = event if isinstance(event, Started) else Started(event.session, event.at)
        parent = self._open.get(started.parent) if started.parent else None
        if parent is not None and place - parent.last > IDLE:
            parent = None  # it is over, whether it has been looked at or not
        courses = [
            side.begin(started, parent.courses[number] if parent is not None else None)
            for number, side in enumerate(self._sides)
        ]
        run = self._open[started.session] = Run(
            started.session,
            str(trace.path),
            trace.format or "",
            order,
            courses,
            parent=parent,
            orphan=bool(started.parent) and parent is None,
            opening=self.begun[order[:-1]] == 1,
            timeline=self._timelines,
        )
        return run

    def _ended(self, run: Run) -> Run:
        run.close()
        del self._open[run.id]
        return run
