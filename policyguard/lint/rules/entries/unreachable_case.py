"""A case that no call reaches, or a list of cases that refuses nothing.

The cases of a rule are read in order, and the first that matches decides. After a case without a
condition, or with one that covers more, the later ones are never read. And a list whose cases all
allow, without `otherwise`, does nothing: what no case matches passes too.

Avoid:

    pay:
      tools: [pay]
      cases:
        - {when: call.args.amount < 100, effect: ask}
        - {when: call.args.amount < 10, effect: allow}

Prefer the narrow case first, and an `otherwise`:

    pay:
      tools: [pay]
      cases:
        - {when: call.args.amount < 10, effect: allow}
        - {when: call.args.amount < 100, effect: ask}
      otherwise: block
"""

from __future__ import annotations

from collections.abc import Iterator

from policyguard.compiler.build.entry_paths import Path
from policyguard.lint.analysis.satisfiability import is_unsatisfiable
from policyguard.lint.rule import Finding, LintContext
from policyguard.model.effect import Effect
from policyguard.model.entry import SELECTOR_KEYS
from policyguard.model.policy import Rule

_UNCERTAIN = ("commands", "paths", "hosts", "classes")
"""Selectors of which a call may match an earlier case, and the later one is read too."""


def check(context: LintContext) -> Iterator[Finding]:
    """Report cases behind others that match whatever they match, and lists that only allow."""
    for rule in context.policy.rules:
        if rule.cases and rule.effect is Effect.ALLOW:
            span = context.merged.span_of(("rules", rule.id, "cases"), key=True)
            message = f"all cases of `{rule.id}` allow, so the rule refuses nothing"
            yield Finding(span, message, "add `otherwise`: the effect on all other calls")
        yield from _check_cases(context, rule)


def _check_cases(context: LintContext, rule: Rule) -> Iterator[Finding]:
    for later in range(len(rule.cases)):
        for earlier in range(later):
            if _covers(context, rule, earlier, later):
                span = context.merged.span_of(("rules", rule.id, "cases", later))
                message = f"no call reaches this case: case {earlier + 1} matches them all"
                yield Finding(span, message, "put it first, or remove it")
                break
    if rule.otherwise is Effect.ALLOW:
        return
    for index, case in enumerate(rule.cases):
        if all(getattr(case, key) is None for key in (*SELECTOR_KEYS, "unless")):
            span = context.merged.span_of(("rules", rule.id, "otherwise"), key=True)
            message = f"no call reaches `otherwise`: case {index + 1} matches them all"
            yield Finding(span, message, "remove it, or give the case a condition")
            return


def _covers(context: LintContext, rule: Rule, earlier: int, later: int) -> bool:
    """Return whether one case certainly matches each call that a later one matches."""
    first, second = rule.cases[earlier], rule.cases[later]
    if any(getattr(first, key) is not None for key in _UNCERTAIN):
        return False
    for key in SELECTOR_KEYS - {"when"}:
        selector = getattr(first, key)
        if selector is not None and selector != getattr(second, key):
            return False
    path: Path = ("rules", rule.id, "cases")
    conditions = (("when", True), ("unless", False))
    trees = [(context.cel_trees.get((*path, later, key)), holds) for key, holds in conditions]
    given = [(tree, holds) for tree, holds in trees if tree is not None]
    for key, holds in conditions:
        tree = context.cel_trees.get((*path, earlier, key))
        if tree is not None and not is_unsatisfiable((tree, not holds), *given):
            return False
    return True
