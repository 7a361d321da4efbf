"""Check budgets: what cannot be counted as the policy says."""

from __future__ import annotations

from collections.abc import Iterator

from policyguard.compiler.merge.layers import MergedPolicy
from policyguard.engines.yaml_tree import Path
from policyguard.model.diagnostic import Diagnostic
from policyguard.model.entry import SELECTOR_KEYS
from policyguard.model.limits import Budget
from policyguard.model.policy import Policy

_SHARED_SCOPES = ("agent", "user", "project", "global")
_BATCH_KINDS = ("calls", "sum", "distinct")


def check_budgets(policy: Policy, merged: MergedPolicy) -> Iterator[Diagnostic]:
    """Report budgets whose keys do not go together."""
    for budget in policy.budgets:
        path: Path = ("budgets", budget.id)
        for key, message, hint in _find_problems(budget, policy):
            is_key = key in SELECTOR_KEYS
            yield merged.diagnostic(
                "reference/no-effect" if is_key else "reference/budget",
                message,
                (*path, key),
                key=True,
                hint=hint,
            )


def _find_problems(budget: Budget, policy: Policy) -> Iterator[tuple[str, str, str | None]]:
    if budget.model_calls is not None:
        for key in sorted(SELECTOR_KEYS - {"agents"}):
            if getattr(budget, key) is not None:
                message = f"`{key}` has no effect here: the model's own calls are of no tool"
                yield key, message, "remove it; all calls are refused once the budget is used up"
        if budget.per.keys:
            message = "`model_calls` are counted per scope: the model's own calls have no arguments"
            yield "per", message, "write a scope alone: `per: session`"
    if budget.calls or budget.tokens or budget.concurrent or budget.model_calls:
        for key in ("advise_at", "ask_at", "halt_at"):
            if 0 < (getattr(budget, key) or 1) < 1:
                message = f"`{key}` is below 1, so every call reaches it"
                yield key, message, "write an amount in the budget's unit, not a share of it"
    if budget.per.scope == "batch" and all(getattr(budget, kind) is None for kind in _BATCH_KINDS):
        message = "a budget per batch counts `calls`, a `sum` or `distinct` values"
        yield "per", message, "write `per: turn` or `per: session`"
    if budget.distinct is None:
        return
    if budget.per.scope in _SHARED_SCOPES:
        message = f"`distinct` cannot be counted per {budget.per.scope}"
        hint = "sessions in other processes share numbers, not values; write `per: session`"
        yield "per", message, hint
    if (budget.max or 0) > policy.bounds.budget_keys:
        message = f"`max` exceeds `bounds.budget_keys`, {policy.bounds.budget_keys:,}"
        yield "max", message, "raise the bound, or lower `max`"
