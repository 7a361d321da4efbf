"""`policyguard suggest`: labelled runs → overrides of a policy, with a guarantee.

Successful and failed runs are split at random. On one half, settings are swept and candidates
ordered from the most cautious to the most aggressive. On the held-out half they are tested in that
order (see `certification`), and the passing one with the highest catch is proposed.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from pathlib import Path

import msgspec
from msgspec.structs import replace

from policyguard.compiler import CompiledPolicy
from policyguard.model.errors import PolicyguardError
from policyguard.report.replay.figures import PolicyFigures
from policyguard.report.suggest.figures import (
    CandidateFigures,
    CurvePoint,
    GroupFigures,
    SettingChange,
    Suggestion,
)
from policyguard.simulate.jobs.job import ONE_PROCESS, Executor, Job, JobInputs
from policyguard.simulate.sample.proportions import share
from policyguard.simulate.sessions.replayed_policy import find_shared_entries
from policyguard.simulate.suggest.candidate_path import Combination, ExploredSpace, build_path
from policyguard.simulate.suggest.certification import certify, needed_trials, split_runs
from policyguard.simulate.suggest.override_layer import (
    Entries,
    compile_layer,
    relative_extends,
    render_layer,
    render_signatures_layer,
)
from policyguard.simulate.suggest.replayed_sessions import RecordedRuns
from policyguard.simulate.suggest.search_space import (
    Axis,
    BudgetScope,
    Choice,
    build_search_space,
    changed_entries,
)
from policyguard.simulate.suggest.session_results import (
    SessionKey,
    SessionResult,
    compile_once,
    outcome_figures,
    refused_share,
)
from policyguard.simulate.suggest.signature_proposals import propose_signatures
from policyguard.simulate.suggest.sweep import Sweep

Replayed = list[tuple[Combination, list[SessionResult]]]
"""Candidates, and the sessions under each."""


class SuggestError(PolicyguardError):
    """Recorded runs that allow no suggestion; the message says why."""


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """The arguments of a suggestion.

    `max_harm` is the accepted share of successful runs with a refused call, `delta` the probability
    that the guarantee fails; both between 0 and 1. The layers' `extends` are relative to `folder`.
    `where` and `columns` say which rows of Parquet files and folders are read, and as what.
    """

    policies: tuple[str, ...]
    files: tuple[Path, ...]
    labels: Path | None
    max_harm: float
    delta: float = 0.1
    seed: int = 0
    folder: Path = Path()
    where: str = ""
    columns: str = ""


def suggest(
    request: Request,
    on_step: Callable[[str], None] = lambda step: None,
    executor: Executor = ONE_PROCESS,
) -> Suggestion:
    """Search for overrides and signatures. `on_step` gets a description of each step.

    By default this process does it all; a policy with entries that count across sessions requires
    that. Raises `WorkerError`, `PolicyError`, `LabelError`, and `SuggestError` if the runs allow
    no suggestion.
    """
    return _Search(request, on_step, executor).run()


class _Groups:
    """The indices of the sessions to explore with, of those held out, and of unlabelled ones."""

    def __init__(self, sessions: Sequence[SessionResult], seed: int, min_held_out: int) -> None:
        by_outcome: dict[bool | None, list[int]] = {True: [], False: [], None: []}
        for index, session in enumerate(sessions):
            by_outcome[session.success].append(index)
        self.unlabelled = by_outcome[None]

        def split(group: list[int], min_held_out: int) -> list[list[int]]:
            halves = split_runs([sessions[index].name for index in group], seed, min_held_out)
            return [[group[position] for position in sorted(half)] for half in halves]

        self.explored_succeeded, self.held_succeeded = split(by_outcome[True], min_held_out)
        self.explored_failed, self.held_failed = split(by_outcome[False], 0)


class _Search:
    """The search for one suggestion; `_base` are the sessions under the policy as it stands."""

    def __init__(
        self, request: Request, on_step: Callable[[str], None], executor: Executor
    ) -> None:
        self._request = request
        self._on_step = on_step
        job = Job(
            policies=request.policies,
            labels=request.labels,
            files=request.files,
            where=request.where,
            columns=request.columns,
        )
        inputs = JobInputs.load(job)
        job = replace(job, revision=inputs.revision)
        self._policy = inputs.policy
        if find_shared_entries(self._policy):
            executor = ONE_PROCESS
        self._recording = RecordedRuns(job, inputs, executor)
        self._extends = relative_extends(request.policies, Path())
        self._name = f"{self._policy.policy.name}-suggested"
        self._replays = 1
        on_step("replaying the policy as it stands")
        self._base = self._recording.replay_under()
        self._check()
        self._needed = needed_trials(request.max_harm, request.delta)
        self._groups = _Groups(self._base, request.seed, self._needed)
        self._axes = build_search_space(self._policy, self._call_counts())

    def run(self) -> Suggestion:
        """Sweep the settings, order, test and choose candidates, and propose signatures."""
        request, groups = self._request, self._groups
        exploring = frozenset([*groups.explored_succeeded, *groups.explored_failed])
        sweep = Sweep(self._axes, self._base, exploring)
        # Without shared entries, other sessions make no difference.
        only = {self._base[index].key for index in exploring}
        shared = find_shared_entries(self._policy)
        explored = sweep.run(lambda entries: self._replay(entries, None if shared else only))
        path = build_path(explored, int(request.max_harm * len(groups.explored_succeeded)))
        replayed = None if shared else self._replay_apart(path, sweep, explored, exploring)
        candidates, chosen = self._test(replayed or [])
        if replayed is None or not self._is_confirmed(replayed, chosen):
            replayed = self._replay_whole(path)
            candidates, chosen = self._test(replayed)
        guaranteed = chosen is not None and candidates[chosen].certified
        suggestion = self._summarize(candidates, guaranteed=guaranteed)
        suggestion.sweep = sweep.points()
        suggestion.curve = self._curve(explored)
        extends = relative_extends(request.policies, request.folder)
        if chosen is not None:
            candidates[chosen].chosen = True
            suggestion.yaml = render_layer(self._name, extends, self._entries(replayed[chosen][0]))
        self._on_step("clustering errors that no signature matches")
        suggestion.errors, proposals = propose_signatures(
            self._policy, self._base, self._recording.find_objections
        )
        name = f"{self._policy.policy.name}-signatures"
        kept = [
            proposal
            for proposal in proposals
            if compile_layer(render_signatures_layer(name, self._extends, [proposal])) is not None
        ]
        suggestion.signatures = kept
        if kept:
            suggestion.signatures_yaml = render_signatures_layer(name, extends, kept)
        suggestion.replays = self._replays
        return suggestion

    def _replay_apart(
        self,
        path: Sequence[Combination],
        sweep: Sweep,
        explored: ExploredSpace,
        exploring: frozenset[int],
    ) -> Replayed | None:
        """Replay the candidates of a path by their options, many side by side.

        What one of its options refuses, or the rest of the policy, a candidate refuses. Sessions
        that lack data are replayed under each whole candidate: an entry may leave open what others
        decide. None if an option is no valid policy without the others.
        """
        path = [combination for combination in path if self._is_valid(combination)]
        choices = {choice for combination in path for choice in _list_choices(combination)}
        rest = frozenset(range(len(self._base))) - exploring
        only = {self._base[index].key for index in rest}
        rest_sweep = Sweep(self._axes, self._base, rest)
        unexplored = rest_sweep.run(lambda entries: self._replay(entries, only), choices)
        if not (sweep.has_replayed(choices) and rest_sweep.has_replayed(choices)):
            return None
        partial = {session.key for session in self._base if not session.is_complete}
        replayed: Replayed = []
        for combination in path:
            sessions = self._base
            entries = self._entries(combination)
            if entries and partial:
                sessions = self._replay(entries, partial) or sessions
            mask = explored.refused(combination) | unexplored.refused(combination)
            replayed.append(
                (
                    combination,
                    [
                        session._replace(refused=bool(mask >> index & 1))
                        if entries and session.is_complete
                        else session
                        for index, session in enumerate(sessions)
                    ],
                )
            )
        return replayed

    def _replay_whole(self, path: Sequence[Combination]) -> Replayed:
        """Replay each candidate of a path over all sessions; leave out those that are invalid."""
        return [
            (combination, sessions)
            for combination in path
            if (sessions := self._replay(self._entries(combination))) is not None
        ]

    def _is_confirmed(self, replayed: Replayed, chosen: int | None) -> bool:
        """Return whether the chosen candidate refuses the same sessions if replayed as a whole."""
        if chosen is None:
            return True
        combination, sessions = replayed[chosen]
        whole = self._replay(self._entries(combination))
        return whole is not None and all(
            (one.refused, one.unknown) == (other.refused, other.unknown)
            for one, other in zip(sessions, whole, strict=True)
        )

    def _test(self, replayed: Replayed) -> tuple[list[CandidateFigures], int | None]:
        """Test the candidates in order; return their figures and the index of the chosen one."""
        request, groups = self._request, self._groups
        harmed = [
            sum(sessions[index].is_harmed for index in groups.held_succeeded)
            for _, sessions in replayed
        ]
        tests = certify(harmed, len(groups.held_succeeded), request.max_harm, request.delta)
        candidates = [
            CandidateFigures(
                changes=self._changes(combination),
                explored=outcome_figures(
                    sessions, groups.explored_succeeded, groups.explored_failed
                ),
                held_out=outcome_figures(sessions, groups.held_succeeded, groups.held_failed),
                unlabelled=refused_share(sessions, groups.unlabelled),
                p_value=test.p_value,
                bound=test.bound,
                certified=test.passed,
            )
            for (combination, sessions), test in zip(replayed, tests, strict=True)
        ]
        return candidates, self._choose(candidates)

    def _curve(self, explored: ExploredSpace) -> list[CurvePoint]:
        """Return the highest catch at each harm, also beyond what is accepted."""
        points: dict[int, CurvePoint] = {}
        highest_catch = -1
        for combination in build_path(explored, len(self._groups.explored_succeeded)):
            mask = explored.refused(combination)
            harm, catch = explored.harm(mask), explored.catch(mask)
            if catch > highest_catch:
                highest_catch = catch
                points[harm] = CurvePoint(
                    harm=share(harm, len(self._groups.explored_succeeded)),
                    catch=share(catch, len(self._groups.explored_failed)),
                    changes=self._changes(combination),
                )
        return list(points.values())

    def _check(self) -> None:
        if not self._recording.trace_count:
            raise SuggestError("no trace among the files: `policyguard traces stats` says why")
        if not self._base:
            raise SuggestError("no session with a call in the traces given")
        if all(session.success is None for session in self._base):
            raise SuggestError("no session has a known outcome; pass the outcomes with --labels")
        succeeded = sum(session.success is True for session in self._base)
        if succeeded < 2:
            raise SuggestError(
                f"{succeeded or 'none'} of {len(self._base)} sessions succeeded; "
                "at least 2 are needed to measure harm"
            )

    def _choose(self, candidates: Sequence[CandidateFigures]) -> int | None:
        """Return the index of the candidate to propose.

        It is the passing one that catches the most held-out runs: a change that catches nothing
        there is not worth it. If there are too few runs for any to pass, the candidates before the
        first that harms too many held-out runs count instead.
        """
        max_harm = self._request.max_harm
        passing = [candidate.certified for candidate in candidates]
        if len(self._groups.held_succeeded) < self._needed:
            passing = [
                (candidate.held_out.harm.rate or 0.0) <= max_harm for candidate in candidates
            ]

        def rank(index: int) -> tuple[int, int, int]:
            candidate = candidates[index]
            return candidate.held_out.catch.count, -len(candidate.changes), -index

        return max(range([*passing, False].index(False)), key=rank, default=None)

    def _summarize(self, candidates: list[CandidateFigures], *, guaranteed: bool) -> Suggestion:
        request, groups = self._request, self._groups
        evaluator = self._policy.evaluator
        return Suggestion(
            policy=PolicyFigures(evaluator.name, evaluator.digest, "observe"),
            max_harm=request.max_harm,
            confidence=1 - request.delta,
            seed=request.seed,
            sessions=len(self._base),
            unlabelled=len(groups.unlabelled),
            explored=GroupFigures(len(groups.explored_succeeded), len(groups.explored_failed)),
            held_out=GroupFigures(len(groups.held_succeeded), len(groups.held_failed)),
            needed=self._needed,
            guaranteed=guaranteed,
            candidates=candidates,
            shared=list(find_shared_entries(self._policy)),
        )

    def _call_counts(self) -> dict[BudgetScope, Sequence[int]]:
        """Return the call counts of successful exploration runs; held-out runs must not leak in."""
        sessions = [self._base[index] for index in self._groups.explored_succeeded]
        per_session = [session.calls for session in sessions]
        maxima = self._recording.max_calls_per_turn()
        per_turn = [maxima.get(session.key, 0) for session in sessions]
        counts: dict[BudgetScope, Sequence[int]] = {"session": per_session}
        if per_turn != per_session:  # if each run is one turn, one budget is enough
            counts["turn"] = per_turn
        return counts

    def _replay(
        self, entries: Entries, only: Collection[SessionKey] | None = None
    ) -> list[SessionResult] | None:
        """Replay the policy with these entries; None if it is invalid then.

        `only`: the sessions to replay. The results of the others may be those of `_base`.
        """
        if not entries:
            return self._base
        if self._compile(entries) is None:
            return None
        self._replays += 1
        self._on_step(f"replaying setting {self._replays - 1}")
        sessions = self._recording.replay_under(self._layer(entries), only)
        chosen = [
            index for index, session in enumerate(self._base) if only is None or session.key in only
        ]
        if only is not None:
            sessions = [session for session in sessions if session.key in only]
        if [session.name for session in sessions] != [self._base[index].name for index in chosen]:
            raise SuggestError("the traces changed while they were read; try again")
        replayed = dict(zip(chosen, sessions, strict=True))
        return [replayed.get(index, session) for index, session in enumerate(self._base)]

    def _compile(self, entries: Entries) -> CompiledPolicy | None:
        return compile_once(self._layer(entries), self._policy.evaluator.digest)

    def _layer(self, entries: Entries) -> str:
        return render_layer(self._name, self._extends, entries)

    def _is_valid(self, combination: Combination) -> bool:
        entries = self._entries(combination)
        return not entries or self._compile(entries) is not None

    def _entries(self, combination: Combination) -> Entries:
        return changed_entries(self._changed_axes(combination))

    def _changes(self, combination: Combination) -> list[SettingChange]:
        return [
            SettingChange(
                axis.id, dict(axis.options[option].setting), dict(axis.options[0].setting)
            )
            for axis, option in self._changed_axes(combination)
        ]

    def _changed_axes(self, combination: Combination) -> list[tuple[Axis, int]]:
        return [(self._axes[axis], option) for axis, option in _list_choices(combination)]


def _list_choices(combination: Combination) -> list[Choice]:
    """Return the options of a combination that are not the policy's own."""
    return [(axis, option) for axis, option in enumerate(combination) if option]
