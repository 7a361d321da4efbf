"""A step of a limit or budget that comes too late to be heard.

`advise_at`, `ask_at` and `halt_at` name the attempt (of a budget: the amount) from which they act,
and the strongest answer counts. A step beyond the limit is not heard where it is no stronger than
the limit's own effect, nor one beyond a stronger step; and a limit that lies beyond `halt_at` is
never reached.

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
from policyguard.lint.context import LintContext
from policyguard.lint.rule import Finding
from policyguard.model.effect import Effect
from policyguard.model.limits import Budget, LimitLevel, PollingLimit

_STEPS = {"advise_at": Effect.ADVISE, "ask_at": Effect.ASK, "halt_at": Effect.HALT}
_LIMITS = ("repeat", "cycle", "no_progress", "failures", "refusals", "outage", "polling")
_BUDGETS = ("calls", "tokens", "cost", "time", "concurrent", "max")


class _Ladder(NamedTuple):
    """A limit and its steps. From more than `limit` on `effect` holds."""

    path: Path
    key: str
    limit: float
    effect: Effect
    steps: dict[str, float]


def check(subject: LintContext) -> Iterator[Finding]:
    """Steps that come too late, and limits behind a halt."""
    for ladder in _ladders(subject):
        for name, height in ladder.steps.items():
            why = _why(ladder, name, height)
            if why:
                span = subject.merged.span_of((*ladder.path, name))
                yield Finding(span, f"`{name}` comes too late: {why}")
        halt = ladder.steps.get("halt_at")
        if halt is not None and halt < ladder.limit:
            span = subject.merged.span_of((*ladder.path, ladder.key))
            yield Finding(span, f"`{ladder.key}` is never reached: `halt_at` acts before it")


def _why(ladder: _Ladder, name: str, height: float) -> str:
    effect = _STEPS[name]
    if height > ladder.limit and effect <= ladder.effect:
        return f"beyond `{ladder.key}` the answer is `{ladder.effect}` anyhow"
    for other, lower in ladder.steps.items():
        if lower <= height and _STEPS[other] > effect:
            return f"`{other}` acts before it"
    return ""


def _ladders(subject: LintContext) -> Iterator[_Ladder]:
    for level, limits in subject.policy.limits.items():
        for kind in _LIMITS:
            yield from _of_limit((*level_path(level), kind), limits, kind)
    for budget in subject.policy.budgets:
        yield _of_budget(budget)


def _of_limit(path: Path, limits: LimitLevel, kind: str) -> Iterator[_Ladder]:
    limit = getattr(limits, kind)
    if limit is None or limit == "none":
        return
    key, most = "max", getattr(limit, "max", None)
    if isinstance(limit, PollingLimit):
        # The first answer is none that is equal to another.
        key, most = "unchanged", None if limit.unchanged is None else limit.unchanged + 1
    if most is not None:
        yield _Ladder(path, key, most, limit.effect, _steps(limit))


def _of_budget(budget: Budget) -> _Ladder:
    key = next(name for name in _BUDGETS if getattr(budget, name) is not None)
    path = ("budgets", budget.id)
    return _Ladder(path, key, getattr(budget, key), budget.effect, _steps(budget))


def _steps(entry: object) -> dict[str, float]:
    return {name: step for name in _STEPS if (step := getattr(entry, name)) is not None}
