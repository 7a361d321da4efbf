"""A policy that refuses nothing.

It names classes, signatures or lists, or only advises: whatever an agent does, it goes through.
Without `extends: [core]` nothing is inherited, no limits and no learning.

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

from policyguard.lint.context import LintContext
from policyguard.lint.rule import Finding
from policyguard.model.effect import Effect
from policyguard.model.limits import LimitLevel
from policyguard.model.policy import Policy


def check(subject: LintContext) -> Iterator[Finding]:
    """A policy without anything that asks, blocks or halts."""
    policy = subject.policy
    if policy.mode == "enforce" and not _refuses(policy):
        message = (
            "this policy refuses nothing: no rule, limit or budget of it asks, blocks or halts"
        )
        hint = "`extends: [core]` brings limits and learning"
        yield Finding(subject.merged.span_of(("name",)), message, hint)


def _refuses(policy: Policy) -> bool:
    if policy.learn is not None or policy.radius:
        return True
    effects = [entry.effect for entry in policy.rules if entry.mode != "observe"]
    effects += [entry.effect for entry in policy.budgets if entry.mode != "observe"]
    if any(effect >= Effect.ASK for effect in effects):
        return True
    if any(rule.effect in ("withhold", "halt") for rule in policy.result_rules):
        return True
    steps = [step for budget in policy.budgets for step in (budget.ask_at, budget.halt_at)]
    if any(step is not None for step in steps):
        return True
    return any(map(_limits, policy.limits.values()))


def _limits(level: LimitLevel) -> bool:
    kinds = (
        level.repeat,
        level.cycle,
        level.no_progress,
        level.failures,
        level.refusals,
        level.outage,
        level.polling,
    )
    return level.timeout not in (None, "none") or any(
        not isinstance(kind, str)
        and kind is not None
        and kind.mode != "observe"
        and (kind.effect >= Effect.ASK or kind.ask_at is not None or kind.halt_at is not None)
        for kind in kinds
    )
