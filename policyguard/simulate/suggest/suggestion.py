"""`policyguard suggest`: recorded runs with labels → overrides of a policy, with a guarantee.

Successful and failed runs are divided by lot. With one half settings are swept and candidates put
in order, the tamest first; on the other half, which had no part in that, they are tested in that
order (see `certify`), and the boldest that passes is proposed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from policyguard.compiler import CompiledPolicy
from policyguard.model.errors import PolicyguardError
from policyguard.report.replay.figures import PolicyFigures, Share
from policyguard.report.suggest.figures import (
    CandidateFigures,
    CurvePoint,
    GroupFigures,
    OutcomeFigures,
    SettingChange,
    Suggestion,
)
from policyguard.simulate.labels import Labels
from policyguard.simulate.proportions import share
from policyguard.simulate.replay import load
from policyguard.simulate.shared_entries import find_shared_entries
from policyguard.simulate.suggest.binomial import needed_trials
from policyguard.simulate.suggest.call_counts import max_calls_per_turn
from policyguard.simulate.suggest.candidate_path import Combination, ExploredSpace, build_path
from policyguard.simulate.suggest.certification import certify
from policyguard.simulate.suggest.holdout import split_runs
from policyguard.simulate.suggest.override_layer import (
    compile_layer,
    relative_extends,
    render_layer,
    render_signatures_layer,
)
from policyguard.simulate.suggest.replayed_sessions import RecordedRuns, SessionResult
from policyguard.simulate.suggest.search_space import Axis, BudgetScope, build_search_space
from policyguard.simulate.suggest.signature_proposals import propose_signatures
from policyguard.simulate.suggest.sweep import Sweep


class SuggestError(PolicyguardError):
    """Recorded runs that nothing can be suggested from; the message says why."""


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """What is asked for.

    `max_harm` is the share of successful runs that may have a call refused, `delta` the
    probability with which the promise may fail; both between 0 and 1. `folder` is where the
    layers will be written: they name what they extend from there.
    """

    policies: tuple[str, ...]
    files: tuple[Path, ...]
    labels: Path | None
    max_harm: float
    delta: float = 0.1
    seed: int = 0
    folder: Path = Path()


def suggest(request: Request, on_step: Callable[[str], None] = lambda step: None) -> Suggestion:
    """Do it. `told` hears what is being done.

    Raises `PolicyError`, `LabelError`, and `SuggestError` where the runs say nothing.
    """
    return _Search(request, on_step).suggestion()


class _Groups:
    """Which sessions are for what."""

    def __init__(self, sessions: Sequence[SessionResult], seed: int, min_held_out: int) -> None:
        good = [n for n, session in enumerate(sessions) if session.success is True]
        bad = [n for n, session in enumerate(sessions) if session.success is False]
        self.unlabelled = [n for n, session in enumerate(sessions) if session.success is None]
        names = [session.name for session in sessions]
        first, last = split_runs([names[n] for n in good], seed, min_held_out)
        self.explored_succeeded = [good[n] for n in sorted(first)]
        self.held_succeeded = [good[n] for n in sorted(last)]
        first, last = split_runs([names[n] for n in bad], seed, 0)
        self.explored_failed = [bad[n] for n in sorted(first)]
        self.held_failed = [bad[n] for n in sorted(last)]


class _Search:
    def __init__(self, request: Request, on_step: Callable[[str], None]) -> None:
        self._request = request
        self._on_step = on_step
        self._policy: CompiledPolicy = load(request.policies)
        labels = Labels.read(request.labels) if request.labels is not None else None
        self._recording = RecordedRuns(request.files, labels)
        self._extends = relative_extends(request.policies, Path())
        self._name = f"{self._policy.policy.name}-suggested"
        self._replays = 1
        on_step("replaying under the policy as it stands")
        self._base = self._recording.replay_under(self._policy)
        self._check()
        self._needed = needed_trials(request.max_harm, request.delta)
        self._groups = _Groups(self._base, request.seed, self._needed)
        self._axes = build_search_space(self._policy, self._call_counts())

    def suggestion(self) -> Suggestion:
        """Sweep, order, test, choose."""
        request, groups = self._request, self._groups
        exploring = frozenset([*groups.explored_succeeded, *groups.explored_failed])
        sweep = Sweep(self._axes, self._base, exploring)
        explored = sweep.run(self._replay)
        most = int(request.max_harm * len(groups.explored_succeeded))
        order = build_path(explored, most)
        played = [(one, found) for one in order if (found := self._replay(one)) is not None]
        harmed = [sum(found[n].is_harmed for n in groups.held_succeeded) for _, found in played]
        tests = certify(harmed, len(groups.held_succeeded), request.max_harm, request.delta)
        candidates = [
            CandidateFigures(
                changes=self._changes(one),
                explored=_outcome_figures(found, groups.explored_succeeded, groups.explored_failed),
                held_out=_outcome_figures(found, groups.held_succeeded, groups.held_failed),
                unlabelled=_refused_share(found, groups.unlabelled),
                p_value=test.p_value,
                bound=test.bound,
                certified=test.passed,
            )
            for (one, found), test in zip(played, tests, strict=True)
        ]
        place, guaranteed = self._choose(candidates)
        suggestion = self._summarize(candidates, guaranteed=guaranteed)
        suggestion.sweep = sweep.points()
        suggestion.curve = self._curve(explored)
        extends = relative_extends(request.policies, request.folder)
        if place is not None:
            candidates[place].chosen = True
            suggestion.yaml = self._render_layer(played[place][0], extends)
        self._on_step("looking at errors that no signature knows")
        suggestion.errors, proposals = propose_signatures(
            self._policy, self._base, self._recording.traces
        )
        name = f"{self._policy.policy.name}-signatures"
        kept = [
            one
            for one in proposals
            if compile_layer(render_signatures_layer(name, self._extends, [one])) is not None
        ]
        suggestion.signatures = kept
        if kept:
            suggestion.signatures_yaml = render_signatures_layer(name, extends, kept)
        suggestion.replays = self._replays
        return suggestion

    def _curve(self, explored: ExploredSpace) -> list[CurvePoint]:
        """The most that can be caught at each harm, whatever is allowed."""
        points: dict[int, CurvePoint] = {}
        caught = -1
        for one in build_path(explored, len(self._groups.explored_succeeded)):
            mask = explored.refused(one)
            harm, catch = explored.harm(mask), explored.catch(mask)
            if catch > caught:
                caught = catch
                points[harm] = CurvePoint(
                    harm=share(harm, len(self._groups.explored_succeeded)),
                    catch=share(catch, len(self._groups.explored_failed)),
                    changes=self._changes(one),
                )
        return list(points.values())

    def _check(self) -> None:
        if not self._recording.trace_count:
            raise SuggestError("no trace among the files given")
        if not self._base:
            raise SuggestError("no session with a call in the traces given")
        if all(session.success is None for session in self._base):
            raise SuggestError(
                "no session has a known outcome: say which runs succeeded, with --labels"
            )
        good = sum(session.success is True for session in self._base)
        if good < 2:
            raise SuggestError(
                f"{good or 'no'} session{'' if good == 1 else 's'} of {len(self._base)} known to "
                "have succeeded: harm cannot be told from that"
            )

    def _choose(self, candidates: Sequence[CandidateFigures]) -> tuple[int | None, bool]:
        """The place of the one to propose, and whether it passed the test.

        Of those that pass, the one that catches the most of the held-out runs: a change that
        catches nothing in runs that it was not made for is not worth it. Where the runs are too
        few for any to pass, the same of those that harm little enough, up to the first that does
        not.
        """
        most = self._request.max_harm
        able = [one.certified for one in candidates]
        if len(self._groups.held_succeeded) < self._needed:
            able = [(one.held_out.harm.rate or 0.0) <= most for one in candidates]
        count = able.index(False) if False in able else len(able)
        place = max(
            range(count),
            key=lambda n: (
                candidates[n].held_out.catch.count,
                -len(candidates[n].changes),
                -n,
            ),
            default=None,
        )
        return place, place is not None and candidates[place].certified

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
        """Calls of the successful runs to explore with; those held out may not show here."""
        chosen = [self._base[n] for n in self._groups.explored_succeeded]
        sessions = [session.calls for session in chosen]
        most = max_calls_per_turn(self._recording.traces())
        turns = [most.get((one.order[0], one.name.partition("\n")[0]), 0) for one in chosen]
        found: dict[BudgetScope, Sequence[int]] = {"session": sessions}
        if turns != sessions:  # where each run is one turn, one budget is enough
            found["turn"] = turns
        return found

    def _replay(self, combination: Combination) -> list[SessionResult] | None:
        if not any(combination):
            return self._base
        made = compile_layer(self._render_layer(combination, self._extends))
        if made is None:
            return None
        self._replays += 1
        self._on_step(f"replaying under setting {self._replays - 1}")
        found = self._recording.replay_under(made)
        if [session.order for session in found] != [session.order for session in self._base]:
            raise SuggestError("the traces have changed while they were read: try again")
        return found

    def _render_layer(self, combination: Combination, extends: Sequence[str]) -> str:
        return render_layer(
            self._name,
            extends,
            (
                (axis.path, axis.options[option].entry)
                for axis, option in self._changed_axes(combination)
            ),
        )

    def _changes(self, combination: Combination) -> list[SettingChange]:
        return [
            SettingChange(
                axis.id, dict(axis.options[option].setting), dict(axis.options[0].setting)
            )
            for axis, option in self._changed_axes(combination)
        ]

    def _changed_axes(self, combination: Combination) -> list[tuple[Axis, int]]:
        pairs = zip(self._axes, combination, strict=True)
        return [(axis, option) for axis, option in pairs if option]


def _outcome_figures(
    found: Sequence[SessionResult], good: Sequence[int], bad: Sequence[int]
) -> OutcomeFigures:
    return OutcomeFigures(
        harm=share(sum(found[n].is_harmed for n in good), len(good)),
        catch=share(sum(found[n].refused for n in bad), len(bad)),
        unknown=sum(found[n].unknown for n in good),
    )


def _refused_share(found: Sequence[SessionResult], places: Sequence[int]) -> Share:
    return share(sum(found[n].refused for n in places), len(places))
