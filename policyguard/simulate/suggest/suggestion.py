"""`policyguard suggest`: recorded runs with labels → overrides of a policy, with a guarantee.

Successful and failed runs are divided by lot. With one half settings are swept and candidates put
in order, the tamest first; on the other half, which had no part in that, they are tested in that
order (see `certify`), and the boldest that passes is proposed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from policyguard.compiler import Compiled
from policyguard.report.figures import PolicyFigures, Share
from policyguard.report.suggestion_figures import (
    CandidateFigures,
    ChangeFigures,
    CurvePoint,
    GroupFigures,
    OutcomeFigures,
    Suggestion,
)
from policyguard.simulate.families import shared
from policyguard.simulate.labels import Labels
from policyguard.simulate.proportions import share
from policyguard.simulate.replay import load
from policyguard.simulate.suggest.axes import Axis, Budgeted, axes
from policyguard.simulate.suggest.binomial import needed
from policyguard.simulate.suggest.calls import calls_per_turn
from policyguard.simulate.suggest.certify import certify
from policyguard.simulate.suggest.layer import (
    compiled,
    extended_from,
    layer,
    signatures_layer,
)
from policyguard.simulate.suggest.path import Combination, Explored, path
from policyguard.simulate.suggest.sessions import Recording, Session
from policyguard.simulate.suggest.signatures import propose
from policyguard.simulate.suggest.split import split
from policyguard.simulate.suggest.sweep import Sweep


class SuggestError(Exception):
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


def suggest(request: Request, told: Callable[[str], None] = lambda step: None) -> Suggestion:
    """Do it. `told` hears what is being done.

    Raises `PolicyError`, `LabelError`, and `SuggestError` where the runs say nothing.
    """
    return _Search(request, told).suggestion()


class _Groups:
    """Which sessions are for what."""

    def __init__(self, sessions: Sequence[Session], seed: int, enough: int) -> None:
        good = [n for n, session in enumerate(sessions) if session.success is True]
        bad = [n for n, session in enumerate(sessions) if session.success is False]
        self.unlabelled = [n for n, session in enumerate(sessions) if session.success is None]
        names = [session.name for session in sessions]
        first, last = split([names[n] for n in good], seed, enough)
        self.explored_good = [good[n] for n in sorted(first)]
        self.held_good = [good[n] for n in sorted(last)]
        first, last = split([names[n] for n in bad], seed, 0)
        self.explored_bad = [bad[n] for n in sorted(first)]
        self.held_bad = [bad[n] for n in sorted(last)]


class _Search:
    def __init__(self, request: Request, told: Callable[[str], None]) -> None:
        self._request = request
        self._told = told
        self._policy: Compiled = load(request.policies)
        labels = Labels.read(request.labels) if request.labels is not None else None
        self._recording = Recording(request.files, labels)
        self._extends = extended_from(request.policies, Path())
        self._name = f"{self._policy.policy.name}-suggested"
        self._replays = 1
        told("replaying under the policy as it stands")
        self._base = self._recording.under(self._policy)
        self._check()
        self._needed = needed(request.max_harm, request.delta)
        self._groups = _Groups(self._base, request.seed, self._needed)
        self._axes = axes(self._policy, self._calls())

    def suggestion(self) -> Suggestion:
        """Sweep, order, test, choose."""
        request, groups = self._request, self._groups
        exploring = frozenset([*groups.explored_good, *groups.explored_bad])
        sweep = Sweep(self._axes, self._base, exploring)
        explored = sweep.run(self._play)
        most = int(request.max_harm * len(groups.explored_good))
        order = path(explored, most)
        played = [(one, found) for one in order if (found := self._play(one)) is not None]
        harmed = [sum(found[n].harmed for n in groups.held_good) for _, found in played]
        tests = certify(harmed, len(groups.held_good), request.max_harm, request.delta)
        candidates = [
            CandidateFigures(
                changes=self._changes(one),
                explored=_outcome(found, groups.explored_good, groups.explored_bad),
                held_out=_outcome(found, groups.held_good, groups.held_bad),
                unlabelled=_refused(found, groups.unlabelled),
                p_value=test.p_value,
                bound=test.bound,
                certified=test.passed,
            )
            for (one, found), test in zip(played, tests, strict=True)
        ]
        place, guaranteed = self._choice(candidates)
        suggestion = self._told_of(candidates, guaranteed=guaranteed)
        suggestion.sweep = sweep.points()
        suggestion.curve = self._curve(explored)
        extends = extended_from(request.policies, request.folder)
        if place is not None:
            candidates[place].chosen = True
            suggestion.yaml = self._layer(played[place][0], extends)
        self._told("looking at errors that no signature knows")
        suggestion.errors, proposals = propose(self._policy, self._base, self._recording.traces)
        name = f"{self._policy.policy.name}-signatures"
        kept = [
            one
            for one in proposals
            if compiled(signatures_layer(name, self._extends, [one])) is not None
        ]
        suggestion.signatures = kept
        if kept:
            suggestion.signatures_yaml = signatures_layer(name, extends, kept)
        suggestion.replays = self._replays
        return suggestion

    def _curve(self, explored: Explored) -> list[CurvePoint]:
        """The most that can be caught at each harm, whatever is allowed."""
        points: dict[int, CurvePoint] = {}
        caught = -1
        for one in path(explored, len(self._groups.explored_good)):
            mask = explored.refused(one)
            harm, catch = explored.harm(mask), explored.catch(mask)
            if catch > caught:
                caught = catch
                points[harm] = CurvePoint(
                    harm=share(harm, len(self._groups.explored_good)),
                    catch=share(catch, len(self._groups.explored_bad)),
                    changes=self._changes(one),
                )
        return list(points.values())

    def _check(self) -> None:
        if not self._recording.formats:
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

    def _choice(self, candidates: Sequence[CandidateFigures]) -> tuple[int | None, bool]:
        """The place of the one to propose, and whether it passed the test.

        Of those that pass, the one that catches the most of the held-out runs: a change that
        catches nothing in runs that it was not made for is not worth it. Where the runs are too
        few for any to pass, the same of those that harm little enough, up to the first that does
        not.
        """
        most = self._request.max_harm
        able = [one.certified for one in candidates]
        if len(self._groups.held_good) < self._needed:
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

    def _told_of(self, candidates: list[CandidateFigures], *, guaranteed: bool) -> Suggestion:
        request, groups = self._request, self._groups
        evaluator = self._policy.evaluator
        return Suggestion(
            policy=PolicyFigures(evaluator.name, evaluator.digest, "observe"),
            max_harm=request.max_harm,
            confidence=1 - request.delta,
            seed=request.seed,
            sessions=len(self._base),
            unlabelled=len(groups.unlabelled),
            explored=GroupFigures(len(groups.explored_good), len(groups.explored_bad)),
            held_out=GroupFigures(len(groups.held_good), len(groups.held_bad)),
            needed=self._needed,
            guaranteed=guaranteed,
            candidates=candidates,
            shared=list(shared(self._policy)),
        )

    def _calls(self) -> dict[Budgeted, Sequence[int]]:
        """Calls of the successful runs to explore with; those held out may not show here."""
        chosen = [self._base[n] for n in self._groups.explored_good]
        sessions = [session.calls for session in chosen]
        most = calls_per_turn(self._recording.traces())
        turns = [most.get((one.order[0], one.name.partition("\n")[0]), 0) for one in chosen]
        found: dict[Budgeted, Sequence[int]] = {"session": sessions}
        if turns != sessions:  # where each run is one turn, one budget is enough
            found["turn"] = turns
        return found

    def _play(self, combination: Combination) -> list[Session] | None:
        if not any(combination):
            return self._base
        made = compiled(self._layer(combination, self._extends))
        if made is None:
            return None
        self._replays += 1
        self._told(f"replaying under setting {self._replays - 1}")
        found = self._recording.under(made)
        if [session.order for session in found] != [session.order for session in self._base]:
            raise SuggestError("the traces have changed while they were read: try again")
        return found

    def _layer(self, combination: Combination, extends: Sequence[str]) -> str:
        return layer(
            self._name,
            extends,
            ((axis.path, axis.options[option].entry) for axis, option in self._set(combination)),
        )

    def _changes(self, combination: Combination) -> list[ChangeFigures]:
        return [
            ChangeFigures(
                axis.id, dict(axis.options[option].setting), dict(axis.options[0].setting)
            )
            for axis, option in self._set(combination)
        ]

    def _set(self, combination: Combination) -> list[tuple[Axis, int]]:
        pairs = zip(self._axes, combination, strict=True)
        return [(axis, option) for axis, option in pairs if option]


def _outcome(found: Sequence[Session], good: Sequence[int], bad: Sequence[int]) -> OutcomeFigures:
    return OutcomeFigures(
        harm=share(sum(found[n].harmed for n in good), len(good)),
        catch=share(sum(found[n].refused for n in bad), len(bad)),
        unknown=sum(found[n].unknown for n in good),
    )


def _refused(found: Sequence[Session], places: Sequence[int]) -> Share:
    return share(sum(found[n].refused for n in places), len(places))
