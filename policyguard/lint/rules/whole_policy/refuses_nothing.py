"""A policy that refuses nothing.

It only declares classes, signatures or lists, or only advises, so every call is allowed. Without
`extends: [core]` a policy inherits no limits and no learning.

Avoid:

    policyguard: 1
    name: my-agent
    signatures: […]

Prefer:

    policyguard: 1
    name: my-agent
    extends: [core]
    signatures: […]
"""

from __future__ import annotations

from collections.abc import Iterator

from policyguard.lint.rule import Finding, LintContext
from policyguard.model.effect import Effect
from policyguard.model.limits import LimitLevel, iter_limits
from policyguard.model.policy import Policy


def check(context: LintContext) -> Iterator[Finding]:
    """Report a policy in which nothing asks, blocks or halts."""
    policy = context.policy
    if policy.mode == "enforce" and not _refuses(policy):
        message = "this policy refuses nothing: no rule, limit or budget asks, blocks or halts"
        hint = "add limits or rules, or `extends: [core]`"
        yield Finding(context.merged.span_of(("name",)), message, hint)


def _refuses(policy: Policy) -> bool:
    if policy.learn is not None or policy.radius:
        return True
    effects = [entry.effect for entry in policy.rules if entry.mode != "observe"]
    effects += [entry.effect for entry in policy.budgets if entry.mode != "observe"]
    if any(effect >= Effect.ASK for effect in effects):
        return True
    if any(rule.effect != "advise" and rule.mode != "observe" for rule in policy.result_rules):
        return True
    if any(budget.ask_at is not None or budget.halt_at is not None for budget in policy.budgets):
        return True
    return any(map(_level_refuses, policy.limits.values()))


def _level_refuses(level: LimitLevel) -> bool:
    return level.timeout not in (None, "none") or any(
        limit.mode != "observe"
        and (limit.effect >= Effect.ASK or limit.ask_at is not None or limit.halt_at is not None)
        for _, _, limit in iter_limits(level)
    )
