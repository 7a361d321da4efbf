"""A budget that is never used up, because another one of the same calls always is before.

The other one counts the same or more, for as long or longer, for as wide a scope or a wider one,
and refuses as hard. Whoever raises or lowers this one sees no difference.

Avoid:

    budgets:
      run: {calls: 100, per: session}
      all: {calls: 50, per: global}

Prefer:

    budgets:
      run: {calls: 50, per: session}
      all: {calls: 1000, per: global}
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice, permutations

from policyguard.lint.context import LintContext
from policyguard.lint.rule import Finding
from policyguard.model.effect import Effect
from policyguard.model.entry import SELECTOR_KEYS
from policyguard.model.limits import Budget

_KINDS = ("calls", "tokens", "cost", "time", "concurrent")
_PAIRS = 100_000
"""Pairs of budgets that are looked at: all of those of 316 budgets."""
_WIDTH = {"turn": 0, "session": 1, "global": 2}
"""Scopes of which each holds all of the one before; of the others nothing is known."""


def check(subject: LintContext) -> Iterator[Finding]:
    """Budgets beside which a smaller one counts all that they count."""
    seen: set[str] = set()
    pairs = permutations(reversed(subject.policy.budgets), 2)
    for budget, other in islice(pairs, _PAIRS):
        if budget.id not in seen and other.id not in seen and _is_first(other, budget):
            seen.add(budget.id)
            message = (
                f"this budget is never used up: `{other.id}` is before, unless more is granted"
            )
            span = subject.merged.span_of(("budgets", budget.id), key=True)
            yield Finding(span, message, f"make `{other.id}` larger, or take one of them out")


def _is_first(other: Budget, budget: Budget) -> bool:
    """Whether `other` refuses whatever `budget` would, and as hard."""
    kind = next((kind for kind in _KINDS if getattr(budget, kind) is not None), None)
    if kind is None or getattr(other, kind) is None:
        return False
    steps = (budget.advise_at, budget.ask_at, budget.halt_at, budget.extend, other.extend)
    if any(step is not None for step in steps) or "observe" in (budget.mode, other.mode):
        return False
    return (
        getattr(other, kind) <= getattr(budget, kind)
        and budget.effect <= other.effect >= Effect.BLOCK
        and all(getattr(other, part) in (None, getattr(budget, part)) for part in SELECTOR_KEYS)
        and _counts_as_long(other, budget)
        and _counts_as_wide(other, budget)
        and (budget.reserve or 0) <= (other.reserve or 0)
        and not (kind == "time" and other.per != budget.per)
    )


def _counts_as_long(other: Budget, budget: Budget) -> bool:
    if other.within is None or other.within == budget.within:
        return True
    return budget.within is not None and other.within >= budget.within


def _counts_as_wide(other: Budget, budget: Budget) -> bool:
    if other.per == budget.per:
        return True
    wide, narrow = _WIDTH.get(other.per.scope, -1), _WIDTH.get(budget.per.scope, 3)
    return wide >= narrow and not other.per.keys
