"""A refusing rule that allows every call for which its condition cannot be evaluated.

By default, a rule whose condition fails to evaluate (an argument is absent or has another type)
refuses the call. With `on_error: allow` or `advise` the call runs: an agent gets past the rule by
leaving out the argument.

Avoid:

    no-large-refund: {tools: [refund], when: call.args.amount > 200, on_error: allow}

Prefer the default, and say in the condition what an absent argument means:

    no-large-refund: {tools: [refund], when: has(call.args.amount) && call.args.amount > 200}
"""

from __future__ import annotations

from collections.abc import Iterator

from policyguard.lint.rule import Finding, LintContext
from policyguard.model.effect import Effect


def check(context: LintContext) -> Iterator[Finding]:
    """Report rules whose effect refuses calls but whose `on_error` does not."""
    for rule in context.policy.rules:
        has_condition = rule.when is not None or rule.unless is not None
        if has_condition and rule.effect >= Effect.ASK and rule.on_error < Effect.ASK:
            message = (
                f"`{rule.id}` refuses calls, but allows them if its condition fails to evaluate"
            )
            hint = "remove `on_error`, or test `has(…)` for arguments that may be absent"
            path = ("rules", rule.id, "on_error")
            yield Finding(context.merged.span_of(path, key=True), message, hint)
