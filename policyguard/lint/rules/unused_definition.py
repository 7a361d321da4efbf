"""A param, list or pattern that nothing uses.

A list that nothing reads looks like a guard and is none: often what should read it has another name
in it, or the values written out once more. (A tag that no expression reads is still demanded of the
host, and stands in the journal.)

Avoid:

    lists: {own_domains: [corp.example]}
    rules: {mail: {tools: [send], unless: call.args.to.endsWith('@corp.example')}}

Prefer:

    lists: {own_domains: [corp.example]}
    rules: {mail: {tools: [send], unless: call.args.to.email_domain() in lists.own_domains}}
"""

from __future__ import annotations

from collections.abc import Iterator

from policyguard.lint.analysis.references import (
    is_field_read,
    matches_any,
    string_constants,
    substituted_names,
)
from policyguard.lint.context import LintContext
from policyguard.lint.rule import Finding


def check(subject: LintContext) -> Iterator[Finding]:
    """Names of these sections that stand in no expression, selector or setting."""
    policy = subject.policy
    written = substituted_names(subject)
    for section, names in (("params", policy.params), ("lists", policy.lists)):
        for name in names:
            if name not in written and not is_field_read(subject, f"{section}.{name}"):
                yield _finding(subject, section, name)
    entries = (*policy.rules, *policy.budgets, *policy.result_rules)
    selectors = [entry.finds for entry in entries if entry.finds is not None]
    found = {item for selector in selectors for item in selector.items}
    found |= {*policy.journal.redact, *string_constants(subject)}
    for name in policy.patterns:
        if not matches_any(name, found):
            yield _finding(subject, "patterns", name)


def _finding(subject: LintContext, section: str, name: str) -> Finding:
    span = subject.merged.span_of((section, name), key=True)
    return Finding(span, f"nothing uses the {section[:-1]} `{name}`")
