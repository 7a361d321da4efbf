"""A rule or budget that refuses every call.

Without a selector that leaves something out, and without a condition, a rule with the effect
`block` or `halt` stops the agent at its first call; so does a budget of 0 calls.

Avoid:

    no-tools: {tools: ["*"], effect: block}

Prefer to name what is refused, or what is not:

    only-reading: {tools: {outside: [read_*, list_*]}, effect: block}
"""

from __future__ import annotations

from collections.abc import Iterator

from policyguard.lint.analysis.satisfiability import HAS_TOOL, is_unsatisfiable
from policyguard.lint.rule import Finding, LintContext
from policyguard.model.effect import Effect
from policyguard.model.entry import SELECTOR_KEYS, Selector
from policyguard.model.limits import Budget
from policyguard.model.policy import Rule


def check(context: LintContext) -> Iterator[Finding]:
    """Report rules and budgets that no call can pass."""
    for rule in context.policy.rules:
        if (
            rule.cases
            or rule.effect < Effect.BLOCK
            or "observe" in (rule.mode, context.policy.mode)
        ):
            continue
        when = context.cel_trees.get(("rules", rule.id, "when"))
        unless = context.cel_trees.get(("rules", rule.id, "unless"))
        is_always = when is None or is_unsatisfiable((when, False), assumptions=HAS_TOOL)
        exempts_nothing = unless is None or is_unsatisfiable((unless, True))
        if is_always and exempts_nothing and _selects_everything(rule):
            span = context.merged.span_of(("rules", rule.id), key=True)
            message = f"`{rule.id}` refuses every call"
            yield Finding(span, message, "select what it refuses, or add a condition")
    for budget in context.policy.budgets:
        if budget.effect < Effect.BLOCK or "observe" in (budget.mode, context.policy.mode):
            continue
        is_empty = 0 in (budget.calls, budget.concurrent)
        if is_empty and budget.when is None and _selects_everything(budget):
            span = context.merged.span_of(("budgets", budget.id), key=True)
            help_text = "select the calls it counts, or raise it"
            yield Finding(span, f"`{budget.id}` refuses every call", help_text)


def _selects_everything(rule: Rule | Budget) -> bool:
    selectors = [getattr(rule, key) for key in SELECTOR_KEYS - {"when"}]
    return all(one is None or _is_everything(one) for one in selectors)


def _is_everything(selector: Selector) -> bool:
    if selector.outside:
        return not selector.items
    return any(set(item) == {"*"} for item in selector.items)
