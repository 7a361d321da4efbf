"""An escalation threshold of a limit or budget that never takes effect.

`advise_at`, `ask_at` and `halt_at` name the attempt (for a budget: the amount) from which they
apply; the strongest effect wins. A threshold above the limit has no effect unless it is stronger
than the limit's own effect, and none above a stronger threshold. A limit above `halt_at` is never
reached.

Avoid:

    repeat: {max: 3, advise_at: 5, halt_at: 8}

Prefer:

    repeat: {max: 3, advise_at: 3, halt_at: 8}
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from policyguard.compiler.build.entry_paths import level_path
from policyguard.engines.yaml_tree import Path
from policyguard.lint.rule import Finding, LintContext
from policyguard.model.effect import Effect
from policyguard.model.limits import Budget, LimitLevel, PollingLimit

_THRESHOLDS = {"advise_at": Effect.ADVISE, "ask_at": Effect.ASK, "halt_at": Effect.HALT}
_LIMITS = ("repeat", "cycle", "no_progress", "failures", "refusals", "outage", "polling")
_BUDGETS = ("calls", "tokens", "cost", "time", "concurrent", "model_calls", "max")


class _Escalation(NamedTuple):
    """A limit and its thresholds. `effect` applies above `limit`."""

    path: Path
    key: str
    limit: float
    effect: Effect
    thresholds: dict[str, float]


def check(context: LintContext) -> Iterator[Finding]:
    """Report thresholds that never take effect, and limits above `halt_at`."""
    for escalation in _escalations(context):
        for name, threshold in escalation.thresholds.items():
            reason = _reason(escalation, name, threshold)
            if reason:
                span = context.merged.span_of((*escalation.path, name))
                yield Finding(span, f"`{name}` never takes effect: {reason}")
        halt = escalation.thresholds.get("halt_at")
        if halt is not None and halt < escalation.limit:
            span = context.merged.span_of((*escalation.path, escalation.key))
            yield Finding(span, f"`{escalation.key}` is never reached: `halt_at` applies first")


def _reason(escalation: _Escalation, name: str, threshold: float) -> str:
    effect = _THRESHOLDS[name]
    if threshold > escalation.limit and effect <= escalation.effect:
        return f"above `{escalation.key}` the effect is already `{escalation.effect}`"
    for other, other_threshold in escalation.thresholds.items():
        if other_threshold <= threshold and _THRESHOLDS[other] > effect:
            return f"`{other}` applies first"
    return ""


def _escalations(context: LintContext) -> Iterator[_Escalation]:
    for level, limits in context.policy.limits.items():
        for kind in _LIMITS:
            yield from _limit_escalation((*level_path(level), kind), limits, kind)
    for budget in context.policy.budgets:
        yield _budget_escalation(budget)


def _limit_escalation(path: Path, limits: LimitLevel, kind: str) -> Iterator[_Escalation]:
    limit = getattr(limits, kind)
    if limit is None or limit == "none":
        return
    key, maximum = "max", getattr(limit, "max", None)
    if isinstance(limit, PollingLimit):
        # The first result cannot equal an earlier one.
        key, maximum = "unchanged", None if limit.unchanged is None else limit.unchanged + 1
    if maximum is not None:
        yield _Escalation(path, key, maximum, limit.effect, _thresholds(limit))


def _budget_escalation(budget: Budget) -> _Escalation:
    key = next(name for name in _BUDGETS if getattr(budget, name) is not None)
    path = ("budgets", budget.id)
    return _Escalation(path, key, getattr(budget, key), budget.effect, _thresholds(budget))


def _thresholds(entry: object) -> dict[str, float]:
    return {name: at for name in _THRESHOLDS if (at := getattr(entry, name)) is not None}
