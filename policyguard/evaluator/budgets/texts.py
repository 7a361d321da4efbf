"""What the violation of a budget says and advises, if the policy does not say it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from policyguard.evaluator.messages import quote_value
from policyguard.model.amounts import SCALE, format_duration

if TYPE_CHECKING:
    from policyguard.evaluator.budgets.budget import CompiledBudget
    from policyguard.evaluator.session_state import SessionState

_COUNTED = {
    "cost": "spent",
    "concurrent": "calls at once",
    "sum": "in all",
    "model_calls": "calls of the model",
    "distinct": "different values",
}
_LEFT = {**_COUNTED, "cost": "to spend"}
STOP = "finish with what you have, or ask the user to raise it"
CORRECT = "correct the arguments; if they are right, tell the user"
_TAKE_LESS = "take no more than is left, or ask the user to raise it"
_WRAP_UP = "wrap up now: use what remains for the most important steps"


def describe(
    budget: CompiledBudget,
    session: SessionState,
    used: int,
    limit: int,
    *,
    exceeded: bool,
    amount: int,
) -> tuple[str, str]:
    """Return what is wrong, and what to do instead; `amount` is what the call takes itself."""
    name = budget.id.partition("/")[2]
    if budget.kind == "time":
        what = "is over" if exceeded else "runs out"
        shown = f"{format_duration(used)} of {format_duration(limit)}"
        return f"the time of budget `{name}` {what}: {shown}", STOP if exceeded else _WRAP_UP
    counted = _COUNTED.get(budget.kind, budget.kind)
    window = f" in {format_duration(budget.within)}" if budget.within is not None else ""
    unnamed = budget.scope in ("agent", "user", "project") and not session.scope_keys[budget.scope]
    scope = f"by all sessions that name no {budget.scope}" if unnamed else f"per {budget.scope}"
    shown = f"{_show(used)} of {_show(limit)} {counted}{window} {scope}"
    if not exceeded:
        return f"budget `{name}` runs out: {shown}", _WRAP_UP
    left = limit - used
    if amount > left > 0:
        text = f"this call takes {_show(amount)}, and budget `{name}` has {_show(left)} left"
        return f"{text}: {shown}", _TAKE_LESS
    return f"budget `{name}` is used up: {shown}", STOP


def describe_unit(kind: str) -> str:
    """Return the words behind an amount that is left of a budget of this kind; "" for time."""
    return "" if kind == "time" else _LEFT.get(kind, kind)


def _show(units: int) -> str:
    return quote_value(units / SCALE)
