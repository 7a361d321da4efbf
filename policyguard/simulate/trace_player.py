"""Trace files → recorded sessions, each played to its end under one policy or two."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence

from policyguard.model.event import Admitted, Approved, Closed, Completed, Event, Refused, Started
from policyguard.simulate.error_kinds import ReadOrder
from policyguard.simulate.replayed_policy import ReplayedPolicy
from policyguard.simulate.run import Run
from policyguard.traces import Item, Skipped, TraceFile

IDLE_LINES = 100_000
"""Entries of its file after which a session that has said nothing is over. What comes later under
its id is another session: nothing can be remembered for ever."""
_PROGRESS_INTERVAL = 256
"""Entries after which `heed` is called."""

Locate = Callable[[int], tuple[TraceFile, ReadOrder]]
"""The file in which the latest item stands, and its order in the replay, told its place."""


class TracePlayer:
    """Plays files, one after the other. `events` counts what it has read.

    `heed` is called every now and then between two events, and may raise to stop: the sessions
    that are open then are given by `cut`. `see` is told the tool of each call. `begun` counts, of
    what was played last, the sessions of each file (its number in their order).
    """

    def __init__(
        self,
        policies: Sequence[ReplayedPolicy],
        *,
        timelines: bool = True,
        on_progress: Callable[[], None] | None = None,
        on_tool: Callable[[str], None] | None = None,
    ) -> None:
        self._policies = policies
        self._timelines = timelines
        self._on_progress = on_progress
        self._on_tool = on_tool
        self._open: dict[str, Run] = {}
        self.events = 0
        self.session_counts: Counter[ReadOrder] = Counter()

    def play(
        self,
        items: Iterable[Item],
        locate: Locate,
        on_skipped: Callable[[Skipped, int], None],
        current_line: Callable[[], int] | None = None,
    ) -> Iterator[Run]:
        """The sessions of a file, or of several that are read as one, as they end.

        The last end with the file. `skipped` is told what was passed over, and its place. `line`
        tells the line of an item, where some are left out; else items are counted.
        """
        runs, heed, see = self._open, self._on_progress, self._on_tool
        counted = place = 0
        self.session_counts.clear()
        pause, swept = _PROGRESS_INTERVAL, IDLE_LINES
        for item in items:
            counted += 1
            if counted == pause:
                pause += _PROGRESS_INTERVAL
                if heed is not None:
                    heed()
                if place > swept:
                    swept = place + IDLE_LINES
                    for idle in [
                        run for run in runs.values() if place - run.last_seen > IDLE_LINES
                    ]:
                        yield self._close_run(idle)
            place = counted if current_line is None else current_line()
            if isinstance(item, Skipped):
                on_skipped(item, place)
                continue
            self.events += 1
            run = runs.get(item.session)
            if run is None:
                run = self._open_run(item, locate, place)
            elif place - run.last_seen > IDLE_LINES:
                yield self._close_run(run)
                run = self._open_run(item, locate, place)
            run.last_seen = place
            if run.parent is not None:
                run.parent.touch(place)
            kind = item.__class__
            if kind is Completed:
                run.replay_result(item)  # type: ignore[arg-type]  # its class has been looked at
            elif kind is Admitted or kind is Refused:
                if see is not None:
                    see(item.tool)  # type: ignore[union-attr]  # its class has been looked at
                run.replay_call(item)  # type: ignore[arg-type]  # its class has been looked at
            elif isinstance(item, Closed):
                if item.success is not None:
                    run.success = item.success
                yield self._close_run(run)
            elif not isinstance(item, Started | Approved):  # in a replay nobody answers
                run.replay_event(item)
        yield from self.close_all()

    def close_all(self) -> Iterator[Run]:
        """The sessions that are still open: what there is of them."""
        for run in list(self._open.values()):
            yield self._close_run(run)

    def _open_run(self, event: Event, locate: Locate, line: int) -> Run:
        trace, order = locate(line)
        self.session_counts[order[:-1]] += 1
        started = event if isinstance(event, Started) else Started(event.session, event.at)
        parent = self._open.get(started.parent) if started.parent else None
        if parent is not None and line - parent.last_seen > IDLE_LINES:
            parent = None  # it is over, whether it has been looked at or not
        courses = [
            side.start_session(started, parent.replays[number] if parent is not None else None)
            for number, side in enumerate(self._policies)
        ]
        run = self._open[started.session] = Run(
            started.session,
            str(trace.path),
            trace.format or "",
            order,
            courses,
            parent=parent,
            is_orphan=bool(started.parent) and parent is None,
            is_first=self.session_counts[order[:-1]] == 1,
            timeline=self._timelines,
        )
        return run

    def _close_run(self, run: Run) -> Run:
        run.close()
        del self._open[run.id]
        return run
