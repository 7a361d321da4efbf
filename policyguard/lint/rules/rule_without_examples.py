"""A rule with a condition that refuses calls, and no example of one that it refuses.

A condition that never holds loads like any other: nobody notices until a call runs that should
not have. `examples` run at each load and judge this rule alone.

Avoid:

    no-root: {tools: [bash], when: call.command.contains('sudo')}

Prefer:

    no-root:
      tools: [bash]
      when: call.command.contains('sudo')
      examples: {match: [bash: sudo ls], no_match: [bash: ls]}
"""

from __future__ import annotations

from collections.abc import Iterator

from policyguard.lint.context import LintContext
from policyguard.lint.rule import Finding
from policyguard.model.effect import Effect


def check(subject: LintContext) -> Iterator[Finding]:
    """Rules that block or halt where a condition holds, without `examples.match`."""
    for rule in subject.policy.rules:
        has_condition = rule.when is not None or rule.unless is not None
        refuses = rule.effect >= Effect.BLOCK and rule.mode != "observe"
        if refuses and has_condition and not rule.examples.match:
            message = f"no example shows what `{rule.id}` refuses"
            hint = "give calls that it must refuse: `examples: {match: […], no_match: […]}`"
            yield Finding(subject.merged.span_of(("rules", rule.id), key=True), message, hint)
