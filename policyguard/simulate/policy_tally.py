"""What one policy says to all sessions of a replay."""

from __future__ import annotations

from collections import Counter

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
from policyguard.simulate.error_kinds import ReadOrder
from policyguard.simulate.proportions import share
from policyguard.simulate.session_replay import FiredEntry, SessionReplay


class PolicyTally:
    """Counts by verdict, by entry, and by what came of the sessions."""

    def __init__(self, policy: PolicyFigures) -> None:
        self.policy = policy
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
        """Count a session's course under the policy."""
        self._effects.update(replay.effects)
        for hit, count in replay.hits.items():
            rule = self._rules.get(hit)
            if rule is None:
                rule = self._rules[hit] = RuleFigures(hit[0], hit[1], observed=hit[2])
            rule.hits += count
            rule.sessions += 1
            rule.succeeded += success is True
            rule.failed += success is False
            rule.first += hit == (replay.first_rule, replay.first_effect, False)
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
        if success is False and refused:
            self._calls_saved += replay.calls_after_refusal
            self._cost_saved += replay.cost_after_refusal

    def merge(self, other: PolicyTally) -> None:
        """Count what another has counted for the same policy."""
        self._refused += other._refused
        self._undecided += other._undecided
        self._effects.update(other._effects)
        for hit, more in other._rules.items():
            rule = self._rules.setdefault(hit, RuleFigures(hit[0], hit[1], observed=hit[2]))
            for name in ("hits", "sessions", "first", "succeeded", "failed"):
                setattr(rule, name, getattr(rule, name) + getattr(more, name))
        for order, fault in other._errors.values():
            self._add_error(order, fault)
        self._succeeded.update(other._succeeded)
        self._failed.update(other._failed)
        self._calls_saved += other._calls_saved
        self._cost_saved += other._cost_saved

    def effects(self) -> EffectFigures:
        """Calls by verdict."""
        return EffectFigures(**self._effects)

    def refused(self, sessions: int) -> Share:
        """The sessions with a refused call, of those of which that is known."""
        return share(self._refused, sessions - self._undecided)

    def undecided(self, sessions: int) -> Share:
        """The sessions of which it is not known, of those with a call."""
        return share(self._undecided, sessions)

    def rules(self, sessions: int) -> list[RuleFigures]:
        """The entries that fired, the most frequent first. `sessions`: those with a call."""
        for rule in self._rules.values():
            told = share(rule.sessions, sessions)
            rule.rate, rule.ci95 = told.rate, told.ci95
        return sorted(
            self._rules.values(), key=lambda rule: (-rule.hits, rule.id, rule.effect, rule.observed)
        )

    def fired_entries(self) -> set[str]:
        """The entries that fired, also those that only observe."""
        return {entry for entry, _, _ in self._rules}

    def eval_errors(self) -> list[EvalErrorFigures]:
        """The expressions that failed, the most frequent first."""
        found = (fault for _, fault in self._errors.values())
        return sorted(found, key=lambda fault: (-fault.hits, fault.id))

    def harm(self) -> Harm:
        """Refusals in runs that succeeded."""
        good = self._succeeded
        told = share(good["refused"], good["refused"] + good["untouched"])
        return Harm(good.total(), good["refused"], told.rate, told.ci95, good["unknown"])

    def catch(self) -> Catch:
        """Refusals in runs that failed."""
        bad = self._failed
        told = share(bad["refused"], bad["refused"] + bad["untouched"])
        return Catch(
            failed=bad.total(),
            refused=bad["refused"],
            rate=told.rate,
            ci95=told.ci95,
            calls_saved=self._calls_saved,
            cost_saved=self._cost_saved / SCALE,
            unknown=bad["unknown"],
        )

    def _add_error(self, order: ReadOrder, error: EvalErrorFigures) -> None:
        known = self._errors.get(error.id)
        if known is None:
            self._errors[error.id] = order, error
            return
        hits = known[1].hits + error.hits
        first = min(known, (order, error), key=lambda told: told[0])
        self._errors[error.id] = first[0], msgspec.structs.replace(first[1], hits=hits)
