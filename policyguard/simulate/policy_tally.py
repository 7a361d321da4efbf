"""Counts of one policy's decisions over all sessions of a replay."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import msgspec

from policyguard.model.amounts import SCALE
from policyguard.report.replay.figures import (
    Catch,
    EffectFigures,
    EvalErrorFigures,
    Harm,
    PolicyFigures,
    RuleFigures,
    Share,
)
from policyguard.simulate.sample.sample_counts import SESSIONS, Key
from policyguard.simulate.sessions.error_kinds import ReadOrder
from policyguard.simulate.sessions.session_replay import FiredEntry, SessionReplay

ShareOf = Callable[[int, int, Key, Key], Share]
"""Returns a share with its interval, from two counts and what they count (see `SampleCounts`)."""


class PolicyTally:
    """Counts of decisions by effect, by entry, and by the outcome of the sessions.

    `index` is 0 for the policy, 1 for the baseline.
    """

    def __init__(self, policy: PolicyFigures, index: int) -> None:
        self.policy = policy
        self._index = index
        self._refused = self._undecided = 0
        self._effects: Counter[str] = Counter()
        self._rules: dict[FiredEntry, RuleFigures] = {}
        self._errors: dict[str, tuple[ReadOrder, EvalErrorFigures]] = {}
        self._succeeded: Counter[str] = Counter()
        self._failed: Counter[str] = Counter()
        self._calls_saved = self._cost_saved = 0

    def add(
        self, replay: SessionReplay, success: bool | None, *, order: ReadOrder, calls: int
    ) -> None:
        """Count a session's replay under the policy."""
        self._effects.update(replay.effects)
        for fired, count in replay.hits.items():
            rule = self._rules.get(fired)
            if rule is None:
                rule = self._rules[fired] = _rule_figures(fired)
            rule.hits += count
            rule.sessions += 1
            rule.succeeded += success is True
            rule.failed += success is False
            if fired == (replay.first_rule, replay.first_effect, False):
                rule.first += 1
                rule.first_succeeded += success is True
        for name, (error, count) in replay.eval_errors.items():
            self._add_error(order, EvalErrorFigures(name, error, count))
        if not calls:
            return
        refused = bool(replay.refused)
        self._refused += refused
        self._undecided += not refused and bool(replay.unknown)
        if success is not None:
            outcome = "refused" if refused else "unknown" if replay.unknown else "untouched"
            (self._succeeded if success else self._failed)[outcome] += 1
        if success is False:
            self._calls_saved += replay.calls_after_refusal
            self._cost_saved += replay.cost_after_refusal

    def merge(self, other: PolicyTally) -> None:
        """Add the counts of another part of the replay under the same policy."""
        self._refused += other._refused
        self._undecided += other._undecided
        self._effects.update(other._effects)
        for fired, more in other._rules.items():
            rule = self._rules.setdefault(fired, _rule_figures(fired))
            for name in ("hits", "sessions", "first", "first_succeeded", "succeeded", "failed"):
                setattr(rule, name, getattr(rule, name) + getattr(more, name))
        for order, error in other._errors.values():
            self._add_error(order, error)
        self._succeeded.update(other._succeeded)
        self._failed.update(other._failed)
        self._calls_saved += other._calls_saved
        self._cost_saved += other._cost_saved

    def effects(self) -> EffectFigures:
        """Return the calls by effect."""
        return EffectFigures(**self._effects)

    def refused(self, sessions: int, share_of: ShareOf) -> Share:
        """Return the share of sessions with a refused call, among the decided ones."""
        decided, index = sessions - self._undecided, self._index
        return share_of(self._refused, decided, ("refused", index), ("decided", index))

    def undecided(self, sessions: int, share_of: ShareOf) -> Share:
        """Return the share of undecided sessions, among those with a call."""
        return share_of(self._undecided, sessions, ("undecided", self._index), SESSIONS)

    def rules(self, sessions: int, share_of: ShareOf) -> list[RuleFigures]:
        """Return the entries that fired, most frequent first. `sessions`: those with a call."""
        for fired, rule in self._rules.items():
            rate = share_of(rule.sessions, sessions, (*fired, self._index), SESSIONS)
            rule.rate, rule.ci95 = rate.rate, rate.ci95
        return sorted(
            self._rules.values(), key=lambda rule: (-rule.hits, rule.id, rule.effect, rule.observed)
        )

    def fired_entries(self) -> set[str]:
        """Return the ids of entries that fired, also in observe mode."""
        return {entry for entry, _, _ in self._rules}

    def eval_errors(self) -> list[EvalErrorFigures]:
        """Return the expressions that failed, most frequent first."""
        errors = (error for _, error in self._errors.values())
        return sorted(errors, key=lambda error: (-error.hits, error.id))

    def harm(self, share_of: ShareOf) -> Harm:
        """Return the refusals in successful runs."""
        runs = self._succeeded
        rate = self._refused_of(runs, True, share_of)
        return Harm(runs.total(), runs["refused"], rate.rate, rate.ci95, runs["unknown"])

    def catch(self, share_of: ShareOf) -> Catch:
        """Return the refusals in failed runs."""
        runs = self._failed
        rate = self._refused_of(runs, False, share_of)
        return Catch(
            failed=runs.total(),
            refused=runs["refused"],
            rate=rate.rate,
            ci95=rate.ci95,
            calls_saved=self._calls_saved,
            cost_saved=self._cost_saved / SCALE,
            unknown=runs["unknown"],
        )

    def _refused_of(self, runs: Counter[str], success: bool, share_of: ShareOf) -> Share:
        hits = "refused", success, self._index
        trials = "decided", success, self._index
        return share_of(runs["refused"], runs["refused"] + runs["untouched"], hits, trials)

    def _add_error(self, order: ReadOrder, error: EvalErrorFigures) -> None:
        known = self._errors.get(error.id)
        if known is None:
            self._errors[error.id] = order, error
            return
        hits = known[1].hits + error.hits
        first = min(known, (order, error), key=lambda located: located[0])
        self._errors[error.id] = first[0], msgspec.structs.replace(first[1], hits=hits)


def _rule_figures(fired: FiredEntry) -> RuleFigures:
    id_, effect, observed = fired
    return RuleFigures(id_, effect, observed=observed)
