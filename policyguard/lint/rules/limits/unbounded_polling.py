"""A tool that may be polled forever.

`polling` replaces `repeat` and `cycle` for its tools. With only a `cooldown`, nothing ends it: a
job that never finishes is polled until the session ends.

Avoid:

    tools: {get_job: {polling: {cooldown: 30s}}}

Prefer:

    tools: {get_job: {polling: {cooldown: 30s, unchanged: 40}}}
"""

from __future__ import annotations

from collections.abc import Iterator

from policyguard.compiler.build.entry_paths import level_path
from policyguard.lint.rule import Finding, LintContext
from policyguard.model.effect import Effect
from policyguard.model.entry import Selector
from policyguard.model.limits import Budget, PollingLimit


def check(context: LintContext) -> Iterator[Finding]:
    """Report `polling` without `unchanged` for tools that no budget limits."""
    for level, limits in context.policy.limits.items():
        polling = limits.polling
        if not isinstance(polling, PollingLimit):
            continue
        if any(n is not None for n in (polling.unchanged, polling.ask_at, polling.halt_at)):
            continue
        if any(_ends(budget, level) for budget in context.policy.budgets):
            continue
        message = "nothing ends this polling: it has only a `cooldown`"
        hint = "set `unchanged`: how many equal results in a row to allow"
        span = context.merged.span_of((*level_path(level), "polling"), key=True)
        yield Finding(span, message, hint)


def _ends(budget: Budget, level: str) -> bool:
    """Return whether a budget eventually refuses calls at this level."""
    if budget.effect < Effect.ASK or budget.within is not None or budget.concurrent is not None:
        return False
    if budget.when is not None or budget.agents is not None or budget.mode == "observe":
        return False
    group, _, name = level.partition(":")
    return _covers(budget.tools, name if group == "tools" else None) and _covers(
        budget.classes, name if group == "classes" else None
    )


def _covers(selector: Selector | None, name: str | None) -> bool:
    if selector is None:
        return True
    return not selector.outside and name is not None and name in selector.items
