"""Recorded sessions under a candidate policy, as a fold over recordings."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from functools import lru_cache
from pathlib import Path, PurePath
from typing import NamedTuple

from policyguard.compiler import CompiledPolicy
from policyguard.model.effect import Effect
from policyguard.model.event import SessionStarted
from policyguard.report.replay.figures import Share, UnmatchedFigures
from policyguard.report.suggest.figures import OutcomeFigures
from policyguard.simulate.jobs.job import Job, JobInputs, load_inputs
from policyguard.simulate.jobs.line_shard import LineShard
from policyguard.simulate.labels import Labels
from policyguard.simulate.sample.proportions import share
from policyguard.simulate.sessions.error_kinds import MAX_KINDS, ReadOrder
from policyguard.simulate.sessions.redacted import PartialEvaluator
from policyguard.simulate.sessions.replayed_policy import ReplayedPolicy
from policyguard.simulate.sessions.run import Run
from policyguard.simulate.sessions.trace_player import TracePlayer
from policyguard.simulate.suggest.override_layer import compile_layer
from policyguard.simulate.suggest.search_space import covers_entry
from policyguard.traces import Item, Reader, Skipped, TraceFile
from policyguard.traces.formats.native import FORMAT
from policyguard.traces.session_trees import SessionTree

_REFUSING_EFFECTS = frozenset(
    effect.value for effect in Effect if effect.strength >= Effect.ASK.strength
)

SessionKey = tuple[int, int, str]
"""The index of a session's file and that of the trace in it, and its id."""
TraceKey = tuple[int, int]


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
    def key(self) -> SessionKey:
        """The indices of its file and its trace, and its id."""
        return self.order[0], self.order[1], self.name.partition("\n")[0]

    @property
    def is_harmed(self) -> bool:
        """Whether a call is refused or may be: unknown counts against the policy."""
        return self.refused or self.unknown


class SessionResults:
    """All sessions with calls; how many traces there are, and in which sessions have children."""

    def __init__(self) -> None:
        self.events = self.traces = 0
        self.sessions: list[SessionResult] = []
        self.with_children: set[TraceKey] = set()

    def merge(self, other: SessionResults) -> None:
        """Add the sessions of another part."""
        self.events += other.events
        self.traces += other.traces
        self.sessions += other.sessions
        self.with_children |= other.with_children


class SessionsFold:
    """A fold that replays sessions in observe mode: refusals change nothing.

    A policy that is in observe mode as a whole is replayed as if enforced; single entries in
    observe mode refuse nothing. `only` are the keys of the sessions to replay, and perhaps others
    with them: a trace in `with_children` is replayed as a whole.
    """

    def __init__(
        self,
        compiled: CompiledPolicy,
        labels: Labels | None,
        only: Collection[SessionKey] | None = None,
        with_children: Collection[TraceKey] = (),
        shard: LineShard | None = None,
        on_progress: Callable[[], None] | None = None,
    ) -> None:
        self._observed = PartialEvaluator(compiled).observe_only
        self._labels = labels
        self._only = only
        self._chosen_traces = {key[:2] for key in only or ()}
        self._with_children = with_children
        self._shard = shard or LineShard()
        self._player = TracePlayer(
            [ReplayedPolicy(compiled, observe=True)], timelines=False, on_progress=on_progress
        )
        self._results = SessionResults()
        self._count = 0

    @property
    def events(self) -> int:
        """The number of events replayed."""
        return self._player.events

    def add(self, trace: TraceFile, order: TraceKey | None = None, *, whole: bool = False) -> None:
        """Replay one file."""
        order = order or (self._count, 0)
        self._count += 1
        self._shard.begin(whole=whole, by_source=True)
        shard = self._shard if trace.format == FORMAT else None
        self._results.traces += trace.format is not None and (
            shard is None or shard.is_whole or shard.index == 0
        )
        current_line = None if shard is None or shard.is_whole else lambda: self._shard.line
        runs = self._player.play(
            self._choose(trace, order),
            lambda line: (trace, (*order, line)),
            lambda item, line: None,
            current_line,
        )
        found = [
            (run.id, run.label_file, run.source, _session_result(run, self._observed))
            for run in runs
        ]
        counts = Counter(source for _, _, source, _ in found)
        for id_, file, source, result in found:
            if result.calls:
                several = counts[source] > 1 or self._shard.has_several_sessions(source)
                labelled = self._labelled(id_, file, result, only_session=not several)
                self._results.sessions.append(labelled)

    def add_tree(self, reader: Reader, files: Sequence[Path], tree: SessionTree) -> None:
        """Replay the files of a session tree, each on its own."""
        for index in tree.indices:
            for member, trace in enumerate(reader.iter_files(files[index])):
                self.add(trace, (index, member), whole=True)

    def stop(self) -> SessionResults:
        """Return the sessions."""
        self._results.events = self._player.events
        return self._results

    def _choose(self, trace: TraceFile, order: TraceKey) -> Iterator[Item]:
        only = self._only
        if only is None or (order in self._with_children and order in self._chosen_traces):
            for item in trace:
                if isinstance(item, SessionStarted) and item.parent:
                    self._results.with_children.add(order)
                yield item
        elif order in self._chosen_traces:
            for item in trace:
                if not isinstance(item, Skipped) and (*order, item.session) in only:
                    yield item

    def _labelled(
        self, id_: str, file: str, result: SessionResult, *, only_session: bool
    ) -> SessionResult:
        if self._labels is None:
            return result
        _, success = self._labels.find(id_, file, only_session=only_session)
        return result if success is None else result._replace(success=success)


def start_sessions(
    layer: str,
    only: frozenset[SessionKey] | None,
    with_children: frozenset[TraceKey],
    job: Job,
    inputs: JobInputs | None,
    shard: LineShard,
    on_progress: Callable[[], None],
) -> SessionsFold:
    """Start to replay the sessions of a shard under a layer over the job's policies, if any."""
    inputs = inputs or load_inputs(job)
    compiled = compile_once(layer, inputs.policy.evaluator.digest) if layer else inputs.policy
    if compiled is None:
        raise ValueError("the policies have changed since the layer was made")
    return SessionsFold(compiled, inputs.labels, only, with_children, shard, on_progress)


@lru_cache(maxsize=2)
def compile_once(layer: str, digest: str) -> CompiledPolicy | None:
    """Compile a layer over policies with this digest; see `compile_layer`."""
    return compile_layer(layer)


def _session_result(run: Run, observed: frozenset[str]) -> SessionResult:
    refused_by = frozenset(
        entry
        for entry, effect, _ in run.replay.hits
        if effect in _REFUSING_EFFECTS and not any(covers_entry(one, entry) for one in observed)
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


def outcome_figures(
    sessions: Sequence[SessionResult], succeeded: Sequence[int], failed: Sequence[int]
) -> OutcomeFigures:
    """Return how often successful runs are harmed, and failed ones caught."""
    return OutcomeFigures(
        harm=share(sum(sessions[index].is_harmed for index in succeeded), len(succeeded)),
        catch=refused_share(sessions, failed),
        unknown=sum(sessions[index].unknown for index in succeeded),
    )


def refused_share(sessions: Sequence[SessionResult], indices: Sequence[int]) -> Share:
    """Return the share of these sessions in which a call is refused."""
    return share(sum(sessions[index].refused for index in indices), len(indices))
