"""A class that nothing names.

Calls are given the class, and no rule, budget, limit or expression asks for it. Often it is
misspelt where it was to be used, or what used it is gone. A class that only keeps calls out of a
later one, or is there for those who extend this policy, is used: say so in an ignore comment.

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
from policyguard.lint.context import LintContext
from policyguard.lint.rule import Finding


def check(subject: LintContext) -> Iterator[Finding]:
    """Classes that nothing names, each once."""
    named = referenced_classes(subject)
    if named is None:
        return
    seen: set[str] = set()
    for place, entry in enumerate(subject.policy.classify.classes):
        if entry.class_ not in seen and not matches_any(entry.class_, named):
            span = subject.merged.span_of(("classify", "classes", place, "class"))
            yield Finding(span, f"nothing in this policy names the class `{entry.class_}`")
        seen.add(entry.class_)
