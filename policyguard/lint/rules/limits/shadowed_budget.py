"""A budget that is never used up, because another budget always is first.

The other budget counts the same calls or more, over the same period and scope or longer and wider
ones, and refuses as strictly. Changing this one makes no difference.

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

from policyguard.lint.rule import Finding, LintContext
from policyguard.model.effect import Effect
from policyguard.model.entry import SELECTOR_KEYS
from policyguard.model.limits import Budget

_KINDS = ("calls", "tokens", "cost", "time", "concurrent", "model_calls")
_MAX_PAIRS = 100_000
"""Pairs of budgets to compare: all pairs of up to 316 budgets."""
_SCOPE_WIDTHS = {"turn": 0, "session": 1, "global": 2}
"""Scopes where each contains the one before; the others cannot be ordered."""


def check(context: LintContext) -> Iterator[Finding]:
    """Report budgets for which a smaller budget counts everything they count."""
    shadowed: set[str] = set()
    pairs = permutations(reversed(context.policy.budgets), 2)
    for budget, other in islice(pairs, _MAX_PAIRS):
        if budget.id not in shadowed and other.id not in shadowed and _shadows(other, budget):
            shadowed.add(budget.id)
            message = f"this budget is never used up, because `{other.id}` always is first"
            span = context.merged.span_of(("budgets", budget.id), key=True)
            yield Finding(span, message, f"raise `{other.id}`, or remove one of the two")


def _shadows(other: Budget, budget: Budget) -> bool:
    """Return whether `other` refuses everything `budget` would, as strictly."""
    kind = next((kind for kind in _KINDS if getattr(budget, kind) is not None), None)
    if kind is None or getattr(other, kind) is None:
        return False
    settings = (budget.advise_at, budget.ask_at, budget.halt_at, budget.extend, other.extend)
    if any(setting is not None for setting in settings) or "observe" in (budget.mode, other.mode):
        return False
    return (
        getattr(other, kind) <= getattr(budget, kind)
        and budget.effect <= other.effect >= Effect.BLOCK
        and all(getattr(other, key) in (None, getattr(budget, key)) for key in SELECTOR_KEYS)
        and _covers_period(other, budget)
        and _covers_scope(other, budget)
        and (budget.reserve or 0) <= (other.reserve or 0)
        and not (kind == "time" and other.per != budget.per)
    )


def _covers_period(other: Budget, budget: Budget) -> bool:
    if other.within is None or other.within == budget.within:
        return True
    return budget.within is not None and other.within >= budget.within


def _covers_scope(other: Budget, budget: Budget) -> bool:
    if other.per == budget.per:
        return True
    wide, narrow = _SCOPE_WIDTHS.get(other.per.scope, -1), _SCOPE_WIDTHS.get(budget.per.scope, 3)
    return wide >= narrow and not other.per.keys
