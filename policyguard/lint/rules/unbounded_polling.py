"""A tool that may be polled for ever.

`polling` replaces `repeat` and `cycle` for its tools. With a `cooldown` alone nothing ends it: a
job that never finishes is asked about until the session does.

Avoid:

    tools: {get_job: {polling: {cooldown: 30s}}}

Prefer:

    tools: {get_job: {polling: {cooldown: 30s, unchanged: 40}}}
"""

from __future__ import annotations

from collections.abc import Iterator

from policyguard.compiler.build.entry_paths import level_path
from policyguard.lint.context import LintContext
from policyguard.lint.rule import Finding
from policyguard.model.effect import Effect
from policyguard.model.entry import Selector
from policyguard.model.limits import Budget, PollingLimit


def check(subject: LintContext) -> Iterator[Finding]:
    """Levels with `polling` without `unchanged`, for whose tools no budget ends."""
    for level, limits in subject.policy.limits.items():
        polling = limits.polling
        if not isinstance(polling, PollingLimit):
            continue
        bounds = (polling.unchanged, polling.ask_at, polling.halt_at)
        if any(bound is not None for bound in bounds):
            continue
        if any(_ends(budget, level) for budget in subject.policy.budgets):
            continue
        message = "nothing bounds this polling: `cooldown` alone lets it go on for ever"
        hint = "give `unchanged`: how many equal answers in a row it may bring"
        span = subject.merged.span_of((*level_path(level), "polling"), key=True)
        yield Finding(span, message, hint)


def _ends(budget: Budget, level: str) -> bool:
    """Whether a budget refuses the calls of a level of limits at some time."""
    if budget.effect < Effect.ASK or budget.within is not None or budget.concurrent is not None:
        return False
    if budget.when is not None or budget.agents is not None or budget.mode == "observe":
        return False
    group, _, name = level.partition(":")
    return _holds(budget.tools, name if group == "tools" else None) and _holds(
        budget.classes, name if group == "classes" else None
    )


def _holds(selector: Selector | None, name: str | None) -> bool:
    if selector is None:
        return True
    return not selector.outside and name is not None and name in selector.items
