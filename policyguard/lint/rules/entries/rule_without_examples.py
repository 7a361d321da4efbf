"""A conditional rule that refuses calls, without an example of one it refuses.

A condition that never holds loads like any other, and stays unnoticed until a call runs that
should have been refused. `examples` are checked at each load, against this rule alone.

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

from policyguard.lint.rule import Finding, LintContext
from policyguard.model.effect import Effect
from policyguard.model.policy import Case, Rule


def check(context: LintContext) -> Iterator[Finding]:
    """Report conditional rules that block or halt and have no `examples.match`."""
    for rule in context.policy.rules:
        parts: tuple[Rule | Case, ...] = (rule, *rule.cases)
        has_condition = any(part.when is not None or part.unless is not None for part in parts)
        refuses = rule.effect >= Effect.BLOCK and rule.mode != "observe"
        if refuses and has_condition and not any(part.examples.match for part in parts):
            message = f"`{rule.id}` has no example of a call it refuses"
            hint = "add calls it must refuse: `examples: {match: […], no_match: […]}`"
            yield Finding(context.merged.span_of(("rules", rule.id), key=True), message, hint)
