"""A limit that never refuses, because another one always does first.

Whoever raises or lowers it sees no difference. The other one was meant to be wider, or this one can
go.

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
from policyguard.lint.context import LintContext
from policyguard.lint.rule import Finding
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

_Kind = RepeatLimit | CycleLimit | FailuresLimit | PollingLimit


class _Reach(NamedTuple):
    """A limit that refuses, and how many calls must have been admitted before it can."""

    kind: str
    limit: _Kind
    calls: int


def check(subject: LintContext) -> Iterator[Finding]:
    """Limits that a limit of the same level, or a budget of the same calls, makes idle."""
    for level, limits in subject.policy.limits.items():
        for reach in _reaches(limits):
            limit = reach.limit
            if limit.mode == "observe" or limit.refuse == "tool" or _has_steps(limit):
                continue  # what it does besides refusing the call, the other one does not
            first = _by_repeat(subject.policy, level, limit)
            first = first or _by_budget(level, reach, subject.policy.budgets)
            if first:
                span = subject.merged.span_of((*level_path(level), reach.kind), key=True)
                yield Finding(span, f"this limit never refuses a call: {first}")


def _has_steps(limit: _Kind) -> bool:
    return any(step is not None for step in (limit.advise_at, limit.ask_at, limit.halt_at))


def _reaches(limits: LimitLevel) -> Iterator[_Reach]:
    if isinstance(limits.repeat, RepeatLimit):
        yield _Reach("repeat", limits.repeat, limits.repeat.max)
    if isinstance(limits.cycle, CycleLimit):
        yield _Reach("cycle", limits.cycle, 2 * limits.cycle.max)
    if isinstance(limits.failures, FailuresLimit):
        yield _Reach("failures", limits.failures, limits.failures.max)
    if isinstance(limits.polling, PollingLimit) and limits.polling.cooldown is None:
        yield _Reach("polling", limits.polling, (limits.polling.unchanged or 0) + 1)


def _by_repeat(policy: Policy, level: str, cycle: _Kind) -> str:
    """The repetition that refuses before a cycle comes round; empty where none is known to."""
    repeat = policy.limits[level].repeat
    if not isinstance(cycle, CycleLimit) or not isinstance(repeat, RepeatLimit):
        return ""
    if repeat.key is not None or repeat.same not in ("call", "target"):
        return ""  # the others ask for more than that the call is the same
    if repeat.mode == "observe" or repeat.until is not None or repeat.effect < Effect.BLOCK:
        return ""
    if repeat.per == "turn" and cycle.per == "session":
        return ""
    others = (limits for other, limits in policy.limits.items() if other != level)
    if any(one.repeat is not None and one.cycle is None for one in others):
        return ""  # a cycle may be of calls that this `repeat` does not see
    window = policy.bounds.window_entries if repeat.window == "all" else repeat.window
    if repeat.max * cycle.longest > window:
        return ""
    if repeat.max < cycle.max or (repeat.max == cycle.max and cycle.effect <= repeat.effect):
        return f"`repeat` refuses the call that would begin round {repeat.max + 1}"
    return ""


def _by_budget(level: str, reach: _Reach, budgets: tuple[Budget, ...]) -> str:
    """The budget that is used up before the limit is reached; empty where none is known to be."""
    for budget in budgets:
        if budget.calls is None or not _is_about(budget, level):
            continue
        if budget.per.scope == "turn" and reach.limit.per == "session":
            continue
        hard = budget.effect >= Effect.BLOCK and budget.effect >= reach.limit.effect
        if hard and _is_total(budget) and budget.calls <= reach.calls:
            return f"the budget `{budget.id}` lets no more than {budget.calls} calls through"
    return ""


def _is_total(budget: Budget) -> bool:
    """Whether what is used up stays used up."""
    return budget.mode != "observe" and not (budget.within or budget.per.keys or budget.extend)


def _is_about(budget: Budget, level: str) -> bool:
    """Whether all calls under a level of limits count in a budget."""
    others = (budget.servers, budget.agents, budget.commands, budget.paths, budget.hosts)
    if budget.when is not None or any(selector is not None for selector in (*others, budget.finds)):
        return False
    group, _, name = level.partition(":")
    for selector, wanted in ((budget.tools, "tools"), (budget.classes, "classes")):
        named = group == wanted and selector is not None and name in selector.items
        if selector is not None and (selector.outside or not named):
            return False
    return True
