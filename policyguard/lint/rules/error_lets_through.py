"""A rule that refuses, and lets through whatever it cannot decide.

An expression that has no value (an argument is absent, or of another type) counts against the call
by default. With `on_error: allow` or `advise` the call runs: whoever leaves out the argument that
the rule looks at is past it.

Avoid:

    no-large-refund: {tools: [refund], when: call.args.amount > 200, on_error: allow}

Prefer the default, and say in the condition what an absent argument means:

    no-large-refund: {tools: [refund], when: has(call.args.amount) && call.args.amount > 200}
"""

from __future__ import annotations

from collections.abc import Iterator

from policyguard.lint.context import LintContext
from policyguard.lint.rule import Finding
from policyguard.model.effect import Effect


def check(subject: LintContext) -> Iterator[Finding]:
    """Rules whose effect refuses a call and whose `on_error` does not."""
    for rule in subject.policy.rules:
        can_err = rule.when is not None or rule.unless is not None
        if can_err and rule.effect >= Effect.ASK and rule.on_error < Effect.ASK:
            message = f"`{rule.id}` refuses calls, and lets them run where it cannot be decided"
            hint = "take `on_error` out, or ask `has(…)` in the condition for what may be absent"
            path = ("rules", rule.id, "on_error")
            yield Finding(subject.merged.span_of(path, key=True), message, hint)
