"""A limit that never refuses, because another limit or budget always refuses first.

Changing it makes no difference. Widen the other one, or remove this one.

Avoid:

    default:
      repeat: {max: 3, window: 20, same: call}     # the same call three times, in any order
      cycle: {longest: 5, max: 4}                  # each call of a cycle four times

Prefer:

    default:
      repeat: {max: 3, window: 20, same: call_and_result}
      cycle: {longest: 5, max: 4}
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from policyguard.compiler.build.entry_paths import level_path
from policyguard.lint.rule import Finding, LintContext
from policyguard.model.effect import Effect
from policyguard.model.limits import (
    Budget,
    CycleLimit,
    FailuresLimit,
    LimitLevel,
    PollingLimit,
    RepeatLimit,
)
from policyguard.model.policy import Policy

_Limit = RepeatLimit | CycleLimit | FailuresLimit | PollingLimit


class _RefusingLimit(NamedTuple):
    """A refusing limit, and how many admitted calls it takes before it can refuse."""

    kind: str
    limit: _Limit
    calls: int


def check(context: LintContext) -> Iterator[Finding]:
    """Report limits that `repeat`, or a budget for the same calls, makes redundant."""
    for level, limits in context.policy.limits.items():
        for entry in _refusing_limits(limits):
            limit = entry.limit
            if limit.mode == "observe" or limit.refuse == "tool" or _has_thresholds(limit):
                continue  # it does more than refuse the call
            reason = _repeat_reason(context.policy, level, limit)
            reason = reason or _budget_reason(level, entry, context.policy.budgets)
            if reason:
                span = context.merged.span_of((*level_path(level), entry.kind), key=True)
                yield Finding(span, f"this limit never refuses: {reason}")


def _has_thresholds(limit: _Limit) -> bool:
    return (limit.advise_at, limit.ask_at, limit.halt_at) != (None, None, None)


def _refusing_limits(limits: LimitLevel) -> Iterator[_RefusingLimit]:
    if isinstance(limits.repeat, RepeatLimit):
        yield _RefusingLimit("repeat", limits.repeat, limits.repeat.max)
    if isinstance(limits.cycle, CycleLimit):
        yield _RefusingLimit("cycle", limits.cycle, limits.cycle.shortest * limits.cycle.max)
    if isinstance(limits.failures, FailuresLimit):
        yield _RefusingLimit("failures", limits.failures, limits.failures.max)
    if isinstance(limits.polling, PollingLimit) and limits.polling.cooldown is None:
        yield _RefusingLimit("polling", limits.polling, (limits.polling.unchanged or 0) + 1)


def _repeat_reason(policy: Policy, level: str, cycle: _Limit) -> str:
    """Return how `repeat` refuses before `cycle` can, or an empty text."""
    repeat = policy.limits[level].repeat
    if not isinstance(cycle, CycleLimit) or not isinstance(repeat, RepeatLimit):
        return ""
    if repeat.key is not None or repeat.same not in ("call", "target"):
        return ""  # it also compares results
    if repeat.mode == "observe" or repeat.until is not None or repeat.effect < Effect.BLOCK:
        return ""
    if repeat.per == "turn" and cycle.per == "session":
        return ""
    others = [limits for other, limits in policy.limits.items() if other != level]
    if any(limits.repeat is not None and limits.cycle is None for limits in others):
        return ""  # a cycle may include calls that this `repeat` does not count
    window = policy.bounds.window_entries if repeat.window == "all" else repeat.window
    if repeat.max * cycle.longest > window:
        return ""
    if repeat.max < cycle.max or (repeat.max == cycle.max and cycle.effect <= repeat.effect):
        return f"`repeat` refuses the call that would start round {repeat.max + 1} first"
    return ""


def _budget_reason(level: str, entry: _RefusingLimit, budgets: tuple[Budget, ...]) -> str:
    """Return which budget is used up before the limit is reached, or an empty text."""
    for budget in budgets:
        if budget.calls is None or not _counts_level(budget, level):
            continue
        if budget.per.scope == "turn" and entry.limit.per == "session":
            continue
        strict = budget.effect >= Effect.BLOCK and budget.effect >= entry.limit.effect
        if strict and _is_permanent(budget) and budget.calls <= entry.calls:
            return f"the budget `{budget.id}` allows only {budget.calls} calls"
    return ""


def _is_permanent(budget: Budget) -> bool:
    """Return whether the budget never frees up again."""
    return budget.mode != "observe" and not (budget.within or budget.per.keys or budget.extend)


def _counts_level(budget: Budget, level: str) -> bool:
    """Return whether a budget counts all calls at this level."""
    others = (budget.when, budget.servers, budget.agents, budget.commands, budget.paths)
    if any(key is not None for key in (*others, budget.hosts, budget.finds)):
        return False
    group, _, name = level.partition(":")
    for selector, kind in ((budget.tools, "tools"), (budget.classes, "classes")):
        named = group == kind and selector is not None and name in selector.items
        if selector is not None and (selector.outside or not named):
            return False
    return True
