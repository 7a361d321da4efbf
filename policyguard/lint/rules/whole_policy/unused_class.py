"""A class that nothing refers to.

Calls get the class, but no rule, budget, limit or expression uses it. Often the name is misspelt
where it is used, or its use was removed. A class may also exist to keep calls out of a later
class, or for policies that extend this one: say so in an ignore comment.

Avoid:

    classify: {classes: [{class: payment, tools: [pay_*]}]}
    rules: {ask-first: {tools: [pay_invoice], effect: ask}}

Prefer:

    classify: {classes: [{class: payment, tools: [pay_*]}]}
    rules: {ask-first: {classes: [payment], effect: ask}}
"""

from __future__ import annotations

from collections.abc import Iterator

from policyguard.lint.analysis.references import matches_any, referenced_classes
from policyguard.lint.rule import Finding, LintContext


def check(context: LintContext) -> Iterator[Finding]:
    """Report each class that nothing refers to, once."""
    referenced = referenced_classes(context)
    if referenced is None:
        return
    seen: set[str] = set()
    for index, entry in enumerate(context.policy.classify.classes):
        if entry.class_ not in seen and not matches_any(entry.class_, referenced):
            span = context.merged.span_of(("classify", "classes", index, "class"))
            yield Finding(span, f"nothing in this policy uses the class `{entry.class_}`")
        seen.add(entry.class_)
