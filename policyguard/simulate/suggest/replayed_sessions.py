"""Recorded sessions replayed under candidate policies."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from itertools import groupby
from pathlib import Path, PurePath
from typing import NamedTuple

from policyguard.compiler import CompiledPolicy
from policyguard.model.effect import Effect
from policyguard.model.event import Admitted, Completed, Refused, SessionStarted, TurnStarted
from policyguard.report.replay.figures import UnmatchedFigures
from policyguard.simulate.error_kinds import MAX_KINDS, ReadOrder
from policyguard.simulate.labels import Labels
from policyguard.simulate.redacted import PartialEvaluator
from policyguard.simulate.replay import runs
from policyguard.simulate.run import Run
from policyguard.traces import Item, Reader, Skipped, TraceFile
from policyguard.traces.containers.row_filter import ALL_ROWS, Rows

_REFUSING_EFFECTS = frozenset(
    effect.value for effect in Effect if effect.strength >= Effect.ASK.strength
)

_MAX_KEPT_CHARS = 1 << 27
"""Characters of recorded runs to keep in memory."""
_ITEM_CHARS = 1000
"""What an event takes in memory besides its texts, in characters."""


class SessionResult(NamedTuple):
    """A recorded session under a policy.

    `refused_by` are the entries that refuse one of its calls; `refused`: any does; `unknown`: that
    depends on redacted data. `is_complete`: the recording lacks no data.
    """

    order: ReadOrder
    name: str
    success: bool | None
    calls: int
    refused: bool
    unknown: bool
    refused_by: frozenset[str]
    errors: tuple[UnmatchedFigures, ...]
    known_errors: int
    is_complete: bool = True

    @property
    def key(self) -> tuple[int, str]:
        """The index of its trace, and its id."""
        return self.order[0], self.name.partition("\n")[0]

    @property
    def is_harmed(self) -> bool:
        """Whether a call is refused or may be: unknown counts against the policy."""
        return self.refused or self.unknown


class RecordedRuns:
    """Recorded runs for many replays. They are read once if they fit in memory, else each time."""

    def __init__(self, files: Sequence[Path], labels: Labels | None, rows: Rows = ALL_ROWS) -> None:
        self._files = files
        self._rows = rows
        self._labels = labels
        self._kept: list[tuple[Path, str | None, list[Item]]] = []
        self._is_read = False
        self._room = _MAX_KEPT_CHARS
        self._with_children: set[int] = set()
        self.trace_count = 0

    def traces(self) -> Iterator[TraceFile]:
        """Yield the traces of the files, also those in archives. Read each before you advance."""
        if self._is_read:
            for path, format_, kept in self._kept:
                yield TraceFile(path, format_, iter(kept))
            return
        reader = Reader(rows=self._rows)
        self.trace_count = index = 0
        for file in self._files:
            for trace in reader.iter_files(file):
                self.trace_count += trace.format is not None
                items: list[Item] = []
                if self._room > 0:
                    self._kept.append((trace.path, trace.format, items))
                yield TraceFile(trace.path, trace.format, self._keep(index, trace, items))
                index += 1
        self._is_read = self._room > 0

    def _keep(self, index: int, trace: TraceFile, items: list[Item]) -> Iterator[Item]:
        """Yield the items of a trace, and keep them as long as all together are small enough."""
        for item in trace:
            if isinstance(item, SessionStarted) and item.parent:
                self._with_children.add(index)
            if self._room > 0:
                self._room -= _ITEM_CHARS + _count_chars(item)
                items.append(item)
                if self._room <= 0:
                    self._kept.clear()
                    items.clear()
            yield item

    def _traces_of(self, sessions: Collection[tuple[int, str]]) -> Iterator[TraceFile]:
        """Yield the traces with only these sessions, by the index of their trace and their id.

        A trace in which sessions have children is complete.
        """
        traces = {index for index, _ in sessions}
        for index, trace in enumerate(self.traces()):
            if index in self._with_children and index in traces:
                yield trace
                continue
            chosen = (
                item
                for item in trace
                if not isinstance(item, Skipped) and (index, item.session) in sessions
            )
            yield TraceFile(trace.path, trace.format, chosen)

    def replay_under(
        self, compiled: CompiledPolicy, only: Collection[tuple[int, str]] | None = None
    ) -> list[SessionResult]:
        """Return all sessions with calls, replayed in observe mode: refusals change nothing.

        A policy that is in observe mode as a whole is replayed as if enforced; single entries in
        observe mode refuse nothing. `only` are the keys of the sessions to replay, and perhaps
        others with them; then their lines are not those of the files.
        """
        results: list[SessionResult] = []
        observed = PartialEvaluator(compiled).observe_only
        traces = self.traces() if only is None else self._traces_of(only)
        replayed = runs(compiled, traces, observe=True, on_skipped=lambda item: None)
        for _, members in groupby(replayed, key=lambda run: run.order[0]):
            sessions = [(run.id, run.file, _session_result(run, observed)) for run in members]
            for id_, file, result in sessions:
                if self._labels is not None:  # a label overrides the recorded outcome
                    _, success = self._labels.find(id_, file, only_session=len(sessions) == 1)
                    if success is not None:
                        result = result._replace(success=success)
                results.append(result)
        return [result for result in results if result.calls]

    def max_calls_per_turn(self) -> dict[tuple[int, str], int]:
        """Count the most calls in one turn, by file index and session."""
        maxima: dict[tuple[int, str], int] = {}
        for index, trace in enumerate(self.traces()):
            counts: dict[str, int] = {}
            for item in trace:
                if isinstance(item, TurnStarted):
                    counts[item.session] = 0
                elif isinstance(item, Admitted):
                    count = counts[item.session] = counts.get(item.session, 0) + 1
                    key = index, item.session
                    maxima[key] = max(maxima.get(key, 0), count)
        return maxima


def _count_chars(item: Item) -> int:
    """Return about how many characters of the recording an item holds."""
    if isinstance(item, Completed):
        return len(item.text) + len(item.error or "")
    if isinstance(item, Admitted | Refused):
        return len(repr(item.args))
    return 0


def _session_result(run: Run, observed: frozenset[str]) -> SessionResult:
    refused_by = frozenset(
        entry
        for entry, effect, _ in run.replay.hits
        if effect in _REFUSING_EFFECTS and not observed.intersection(_entry_prefixes(entry))
    )
    # A refusal by an entry in observe mode may hide that another entry is undecidable.
    uncertain = run.replay.unknown or (run.replay.refused and run.redacted_args)
    return SessionResult(
        order=run.order,
        name=f"{run.id}\n{PurePath(run.file).name}",
        success=run.success,
        calls=run.calls,
        refused=bool(refused_by),
        unknown=bool(uncertain) and not refused_by,
        refused_by=refused_by,
        errors=tuple(run.unmatched.most_frequent(MAX_KINDS)),
        known_errors=sum(run.signatures.values()),
        is_complete=not (run.redacted_args or run.redacted_results or run.replay.lacks_tags),
    )


def _entry_prefixes(entry: str) -> list[str]:
    """Return an entry's id and those it is part of, for `limits/default/polling/cooldown`."""
    parts = entry.split("/")
    return ["/".join(parts[:count]) for count in range(1, len(parts) + 1)]
