"""A param, list or pattern that nothing uses.

An unread list protects nothing. Often its name is misspelt where it should be used, or the values
are written out there again. (Unread tags are not reported: hosts must set them, and the journal
keeps them.)

Avoid:

    lists: {own_domains: [corp.example]}
    rules: {mail: {tools: [send], unless: call.args.to.endsWith('@corp.example')}}

Prefer:

    lists: {own_domains: [corp.example]}
    rules: {mail: {tools: [send], unless: call.args.to.email_domain() in lists.own_domains}}
"""

from __future__ import annotations

from collections.abc import Iterator

from policyguard.compiler.build.entry_paths import call_entries
from policyguard.lint.analysis.references import (
    is_field_read,
    matches_any,
    string_constants,
    substituted_names,
)
from policyguard.lint.rule import Finding, LintContext


def check(context: LintContext) -> Iterator[Finding]:
    """Report names that no expression, selector or setting uses."""
    policy = context.policy
    substituted = substituted_names(context)
    for section, names in (("params", policy.params), ("lists", policy.lists)):
        for name in names:
            if name not in substituted and not is_field_read(context, f"{section}.{name}"):
                yield _report(context, section, name)
    entries = (*(entry for _, entry in call_entries(policy)), *policy.result_rules)
    selectors = [entry.finds for entry in entries if entry.finds is not None]
    used = {item for selector in selectors for item in selector.items}
    used |= {*policy.journal.redact, *string_constants(context)}
    for name in policy.patterns:
        if not matches_any(name, used):
            yield _report(context, "patterns", name)


def _report(context: LintContext, section: str, name: str) -> Finding:
    span = context.merged.span_of((section, name), key=True)
    return Finding(span, f"nothing uses the {section[:-1]} `{name}`")
