"""What one policy says to all recorded sessions, and what came of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from pathlib import Path, PurePath
from typing import NamedTuple

from policyguard.compiler import CompiledPolicy
from policyguard.model.effect import Effect
from policyguard.report.replay.figures import UnmatchedFigures
from policyguard.simulate.error_kinds import MAX_KINDS, ReadOrder
from policyguard.simulate.labels import Labels
from policyguard.simulate.partial_evaluation import PartialEvaluator
from policyguard.simulate.replay import runs
from policyguard.simulate.run import Run
from policyguard.traces import Reader, TraceFile

_REFUSING_EFFECTS = frozenset(
    effect.value for effect in Effect if effect.strength >= Effect.ASK.strength
)


class SessionResult(NamedTuple):
    """A recorded session under a policy.

    `by` are the entries that refuse a call of it; `refused` is whether any does, `unknown` whether
    that is not known, for the recording has not kept what the policy asks for.
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
        """Whether a call is refused, or may be: what is not known counts against the policy."""
        return self.refused or self.unknown


class RecordedRuns:
    """Recorded runs, to be replayed again and again: files are read anew each time."""

    def __init__(self, files: Sequence[Path], labels: Labels | None) -> None:
        self._files = files
        self._labels = labels
        self.trace_count = 0

    def traces(self) -> Iterator[TraceFile]:
        """The files, or members of archives, that hold a trace."""
        reader = Reader()
        self.trace_count = 0
        for file in self._files:
            for trace in reader.iter_files(file):
                self.trace_count += trace.format is not None
                yield trace

    def replay_under(self, compiled: CompiledPolicy) -> list[SessionResult]:
        """All sessions with calls. In observe mode: nothing that is refused changes the run.

        A policy that is itself in observe mode is taken as it would be enforced; entries that are
        refuse nothing.
        """
        found: list[SessionResult] = []
        observed = PartialEvaluator(compiled).observe_only
        played = runs(compiled, self.traces(), observe=True, on_skipped=lambda item: None)
        for _, members in groupby(played, key=lambda run: run.order[0]):
            found += self._apply_labels([(run, _session_result(run, observed)) for run in members])
        return [session for session in found if session.calls]

    def _apply_labels(self, members: list[tuple[Run, SessionResult]]) -> Iterator[SessionResult]:
        """The sessions of a file; a label goes before what the recording says of itself."""
        for run, session in members:
            if self._labels is not None:
                _, success = self._labels.find(run.id, run.file, only_session=len(members) == 1)
                if success is not None:
                    session = session._replace(success=success)
            yield session


def _session_result(run: Run, observed: frozenset[str]) -> SessionResult:
    course = run.replay
    # Replayed in observe mode, what fires is the same for all entries.
    by = frozenset(
        entry
        for entry, effect, _ in course.hits
        if effect in _REFUSING_EFFECTS and not observed.intersection(_entry_prefixes(entry))
    )
    # An entry that is only observed may have hidden that another one is not certain.
    doubtful = course.unknown or (course.refused and run.redacted_args)
    return SessionResult(
        order=run.order,
        name=f"{run.id}\n{PurePath(run.file).name}",
        success=run.success,
        calls=run.calls,
        refused=bool(by),
        unknown=bool(doubtful) and not by,
        refused_by=by,
        errors=tuple(run.unmatched.most_frequent(MAX_KINDS)),
        known_errors=sum(run.signatures.values()),
    )


def _entry_prefixes(entry: str) -> list[str]:
    """An entry's id, and those of which it is a part: `limits/default/polling/cooldown`."""
    steps = entry.split("/")
    return ["/".join(steps[:count]) for count in range(1, len(steps) + 1)]
