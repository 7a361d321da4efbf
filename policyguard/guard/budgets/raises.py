"""What a host raises: the budget that it names, by an amount in the budget's own unit."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta

from policyguard.evaluator.budgets.budget import CompiledBudget
from policyguard.guard import validate


def find_budget(
    budgets: Mapping[str, CompiledBudget], name: str, amount: float | timedelta | None
) -> tuple[str, float]:
    """Return the id of a budget and the amount to raise it by.

    `KeyError` for an unknown budget, `ValueError` for an amount that is missing, negative or not
    finite.
    """
    id_ = name if name in budgets else f"budgets/{name}"
    if id_ not in budgets:
        known = ", ".join(budget.partition("/")[2] for budget in budgets) or "none"
        raise KeyError(f"no budget `{name}` in this policy; it has: {known}")
    budget = budgets[id_]
    if amount is None:
        if budget.extend is None:
            raise ValueError(f"budget `{name}` has no `extend`; pass an amount")
        amount = budget.extension
    if isinstance(amount, timedelta) and budget.kind == "time":
        amount = amount.total_seconds()
    return id_, validate.amount("amount", amount)
