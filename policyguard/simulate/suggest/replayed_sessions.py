"""Recorded runs that are replayed under many candidate policies."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from functools import partial

from policyguard.model.event import Admitted, Completed, Refused
from policyguard.simulate.jobs.job import (
    ONE_PROCESS,
    Executor,
    Job,
    JobInputs,
    OneProcess,
    R,
    StartFold,
)
from policyguard.simulate.jobs.line_shard import LineShard
from policyguard.simulate.suggest.session_results import (
    SessionKey,
    SessionResult,
    TraceKey,
    start_sessions,
)
from policyguard.simulate.suggest.signature_objections import start_objections
from policyguard.simulate.suggest.turn_counts import start_turn_counts
from policyguard.traces import Item, Reader, TraceFile

_MAX_KEPT_CHARS = 1 << 27
"""Characters of recorded runs to keep in memory."""
_ITEM_CHARS = 1000
"""What an event takes in memory besides its texts, in characters."""


class RecordedRuns:
    """Recorded runs for many replays, by default in this process.

    Then they are read once if they fit in memory, else each time. `trace_count` is known after the
    first replay.
    """

    def __init__(self, job: Job, inputs: JobInputs, executor: Executor = ONE_PROCESS) -> None:
        self._job = job
        self._inputs = inputs
        self._executor = executor
        self._kept = _KeptTraces(job)
        self._with_children: frozenset[TraceKey] = frozenset()
        self.trace_count = 0

    def replay_under(
        self, layer: str = "", only: Collection[SessionKey] | None = None
    ) -> list[SessionResult]:
        """Return all sessions with calls under a layer over the policies, in their order.

        `only` are the keys of the sessions to replay, and perhaps others with them; then their
        lines are not those of the files. See `SessionsFold`.
        """
        chosen = None if only is None else frozenset(only)
        found = self._fold(partial(start_sessions, layer, chosen, self._with_children))
        if only is None:
            self.trace_count = found.traces
            self._with_children = frozenset(found.with_children)
        return sorted(found.sessions, key=lambda session: session.order)

    def max_calls_per_turn(self) -> dict[SessionKey, int]:
        """Count the most calls in one turn of each session."""
        return self._fold(start_turn_counts).maxima

    def find_objections(self, patterns: Collection[str]) -> list[str]:
        """Return the objection to each pattern of a signature; see `ObjectionsFold`."""
        return self._fold(partial(start_objections, tuple(patterns))).reasons()

    def _fold(self, start: StartFold[R]) -> R:
        if not isinstance(self._executor, OneProcess):
            return self._executor.fold(start, self._job, self._inputs, lambda *_: None)[0]
        fold = start(self._job, self._inputs, LineShard(), lambda: None)
        for order, trace in self._kept.traces():
            fold.add(trace, order)
        return fold.stop()


class _KeptTraces:
    """The traces of a job, kept in memory if all together are small enough."""

    def __init__(self, job: Job) -> None:
        self._files = job.files
        self._rows = job.read_rows()
        self._kept: list[tuple[TraceKey, TraceFile, list[Item]]] = []
        self._is_read = False
        self._room = _MAX_KEPT_CHARS

    def traces(self) -> Iterator[tuple[TraceKey, TraceFile]]:
        """Yield the traces of the files, also those in archives. Read each before you advance."""
        if self._is_read:
            for order, trace, kept in self._kept:
                yield order, TraceFile(trace.path, trace.format, iter(kept))
            return
        reader = Reader(rows=self._rows)
        for index, file in enumerate(self._files):
            for member, trace in enumerate(reader.iter_files(file)):
                items: list[Item] = []
                order = index, member
                if self._room > 0:
                    self._kept.append((order, trace, items))
                yield order, TraceFile(trace.path, trace.format, self._keep(trace, items))
        self._is_read = self._room > 0

    def _keep(self, trace: TraceFile, items: list[Item]) -> Iterator[Item]:
        for item in trace:
            if self._room > 0:
                self._room -= _ITEM_CHARS + _count_chars(item)
                items.append(item)
                if self._room <= 0:
                    self._kept.clear()
                    items.clear()
            yield item


def _count_chars(item: Item) -> int:
    """Return about how many characters of the recording an item holds."""
    if isinstance(item, Completed):
        return len(item.text) + len(item.error or "")
    if isinstance(item, Admitted | Refused):
        return len(repr(item.args))
    return 0
