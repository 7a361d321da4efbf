"""Trace files → recorded sessions, each replayed to its end under one policy or two."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence

from policyguard.model.event import (
    Admitted,
    Approved,
    CandidateDiffered,
    Completed,
    Denied,
    Event,
    Refused,
    SessionEnded,
    SessionStarted,
)
from policyguard.simulate.sessions.error_kinds import ReadOrder
from policyguard.simulate.sessions.replayed_policy import ReplayedPolicy
from policyguard.simulate.sessions.run import Run
from policyguard.traces import Item, Skipped, TraceFile
from policyguard.traces.interleaving import FileEnded

IDLE_LINES = 100_000
"""A session without an item for so many lines of its file is over; memory is finite. Later items
with its id belong to a new session."""
PROGRESS_INTERVAL = 256
"""Items between two calls of `on_progress`."""

Locate = Callable[[int], tuple[TraceFile, ReadOrder]]
"""Returns the file and the read order of the latest item, given its line."""


class TracePlayer:
    """A player of trace files, one after the other. `events` counts the events read.

    `on_progress` is called now and then between two events, and may raise to stop; `close_all`
    then returns the open sessions. `on_tool` gets the tool and server of each call.
    `session_counts` counts the sessions of each file that was played last, by the file's read
    order; with `by_source`, those of a converted recording by their source, and also those that are
    not in the sample.
    """

    def __init__(
        self,
        policies: Sequence[ReplayedPolicy],
        *,
        timelines: bool = True,
        on_progress: Callable[[], None] | None = None,
        on_tool: Callable[[str, str], None] | None = None,
        is_sampled: Callable[[Event], bool] | None = None,
        by_source: bool = False,
    ) -> None:
        self._policies = policies
        self._timelines = timelines
        self._on_progress = on_progress
        self._on_tool = on_tool
        self._is_sampled = is_sampled
        self._by_source = by_source
        self._open: dict[str, Run] = {}
        self._left_out: set[str] = set()  # open sessions
        self.events = 0
        self.session_counts: Counter[ReadOrder | str] = Counter()

    def play(
        self,
        items: Iterable[Item],
        locate: Locate,
        on_skipped: Callable[[Skipped, int], None],
        current_line: Callable[[], int] | None = None,
    ) -> Iterator[Run]:
        """Yield the sessions of a file, or of several that are read as one, as they end.

        The end of the file ends them all. `on_skipped` gets what was skipped, and its line.
        `current_line` returns the line of an item if lines are filtered; by default, items are
        counted.
        """
        runs, on_progress, on_tool = self._open, self._on_progress, self._on_tool
        is_sampled = self._is_sampled
        count = line = 0
        self.session_counts.clear()
        self._left_out.clear()
        next_pause, swept = PROGRESS_INTERVAL, IDLE_LINES
        for item in items:
            count += 1
            if count == next_pause:
                next_pause += PROGRESS_INTERVAL
                if on_progress is not None:
                    on_progress()
                if line > swept:
                    swept = line + IDLE_LINES
                    for idle in [run for run in runs.values() if line - run.last_seen > IDLE_LINES]:
                        yield self._close_run(idle)
            line = count if current_line is None else current_line()
            if isinstance(item, Skipped):
                on_skipped(item, line)
                continue
            if is_sampled is not None and not is_sampled(item):
                if self._by_source:
                    self._count_left_out(item, locate(line)[1])
                continue
            self.events += 1
            run = runs.get(item.session)
            if run is None:
                if item.__class__ is FileEnded:
                    self.events -= 1
                    continue
                run = self._open_run(item, locate, line)
            elif line - run.last_seen > IDLE_LINES:
                yield self._close_run(run)
                run = self._open_run(item, locate, line)
            run.last_seen = line
            if run.parent is not None:
                run.parent.touch(line)
            kind = item.__class__
            if kind is Completed:
                run.replay_result(item)  # type: ignore[arg-type]  # comparing classes is faster
            elif kind is Admitted or kind is Refused:
                if on_tool is not None:
                    on_tool(item.tool, item.server)  # type: ignore[union-attr]  # as above
                run.replay_call(item)  # type: ignore[arg-type]  # as above
            elif kind is CandidateDiffered:
                run.add_candidate(item)  # type: ignore[arg-type]  # as above
            elif isinstance(item, SessionEnded):
                self.events -= kind is FileEnded
                if item.success is not None:
                    run.success = item.success
                yield self._close_run(run)
            elif not isinstance(
                item, SessionStarted | Approved | Denied
            ):  # a replay has no approver
                run.replay_event(item)
        yield from self.close_all()

    def close_all(self) -> Iterator[Run]:
        """Close the open sessions and return what there is of them."""
        for run in list(self._open.values()):
            yield self._close_run(run)

    def _open_run(self, event: Event, locate: Locate, line: int) -> Run:
        trace, order = locate(line)
        started = (
            event if isinstance(event, SessionStarted) else SessionStarted(event.session, event.at)
        )
        place = self._count_session(started, order)
        parent = self._open.get(started.parent) if started.parent else None
        if parent is not None and line - parent.last_seen > IDLE_LINES:
            parent = None  # it is over, even if it was not closed yet
        replays = [
            policy.start_session(started, parent.replays[index] if parent is not None else None)
            for index, policy in enumerate(self._policies)
        ]
        run = self._open[started.session] = Run(
            started.session,
            str(trace.path),
            trace.format or "",
            order,
            replays,
            parent=parent,
            is_orphan=bool(started.parent) and parent is None,
            is_first=self.session_counts[place] == 1,
            timeline=self._timelines,
            agent=started.agent,
            source=started.source,
        )
        return run

    def _count_session(self, event: Event, order: ReadOrder) -> ReadOrder | str:
        source = event.source if self._by_source and isinstance(event, SessionStarted) else ""
        self.session_counts[source or order[:-1]] += 1
        return source or order[:-1]

    def _count_left_out(self, event: Event, order: ReadOrder) -> None:
        """Count a session that is not in the sample: its file has it all the same."""
        if event.session not in self._left_out and event.__class__ is not FileEnded:
            self._left_out.add(event.session)
            self._count_session(event, order)
        if isinstance(event, SessionEnded):
            self._left_out.discard(event.session)

    def _close_run(self, run: Run) -> Run:
        run.close()
        del self._open[run.id]
        return run
