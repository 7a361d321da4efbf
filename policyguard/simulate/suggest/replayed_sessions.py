"""Recorded sessions replayed under candidate policies."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from pathlib import Path, PurePath
from typing import NamedTuple

from policyguard.compiler import CompiledPolicy
from policyguard.model.effect import Effect
from policyguard.model.event import Admitted, TurnStarted
from policyguard.report.replay.figures import UnmatchedFigures
from policyguard.simulate.error_kinds import MAX_KINDS, ReadOrder
from policyguard.simulate.labels import Labels
from policyguard.simulate.redacted import PartialEvaluator
from policyguard.simulate.replay import runs
from policyguard.simulate.run import Run
from policyguard.traces import Reader, TraceFile

_REFUSING_EFFECTS = frozenset(
    effect.value for effect in Effect if effect.strength >= Effect.ASK.strength
)


class SessionResult(NamedTuple):
    """A recorded session under a policy.

    `refused_by` are the entries that refuse one of its calls; `refused`: any does; `unknown`: that
    depends on redacted data.
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

    @property
    def is_harmed(self) -> bool:
        """Whether a call is refused or may be: unknown counts against the policy."""
        return self.refused or self.unknown


class RecordedRuns:
    """Recorded runs for many replays; each reads the files again."""

    def __init__(self, files: Sequence[Path], labels: Labels | None) -> None:
        self._files = files
        self._labels = labels
        self.trace_count = 0

    def traces(self) -> Iterator[TraceFile]:
        """Yield the traces of the files, also those in archives."""
        reader = Reader()
        self.trace_count = 0
        for file in self._files:
            for trace in reader.iter_files(file):
                self.trace_count += trace.format is not None
                yield trace

    def replay_under(self, compiled: CompiledPolicy) -> list[SessionResult]:
        """Return all sessions with calls, replayed in observe mode: refusals change nothing.

        A policy that is in observe mode as a whole is replayed as if enforced; single entries in
        observe mode refuse nothing.
        """
        results: list[SessionResult] = []
        observed = PartialEvaluator(compiled).observe_only
        replayed = runs(compiled, self.traces(), observe=True, on_skipped=lambda item: None)
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
    )


def _entry_prefixes(entry: str) -> list[str]:
    """Return an entry's id and those it is part of, for `limits/default/polling/cooldown`."""
    parts = entry.split("/")
    return ["/".join(parts[:count]) for count in range(1, len(parts) + 1)]
