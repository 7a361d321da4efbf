"""A param, list, pattern or mark that nothing uses.

An unread list protects nothing, nor does a mark that no condition reads. Often its name is misspelt
where it should be used, or the values are written out there again. (Unread tags are not reported:
hosts must set them, and the journal keeps them.)

Avoid:

    lists: {own_domains: [corp.example]}
    rules: {mail: {tools: [send], unless: call.args.to.endsWith('@corp.example')}}

Prefer:

    lists: {own_domains: [corp.example]}
    rules: {mail: {tools: [send], unless: call.args.to.email_domain() in lists.own_domains}}
"""

from __future__ import annotations

from collections.abc import Iterator

from policyguard.compiler.build.entry_paths import selective_entries
from policyguard.compiler.build.expressions import reads_field
from policyguard.lint.analysis.references import (
    is_field_read,
    matches_any,
    string_constants,
    substituted_names,
)
from policyguard.lint.rule import Finding, LintContext
from policyguard.model.marks import Mark


def check(context: LintContext) -> Iterator[Finding]:
    """Report names that no expression, selector or setting uses."""
    policy = context.policy
    substituted = substituted_names(context)
    for section, names in (("params", policy.params), ("lists", policy.lists)):
        for name in names:
            if name not in substituted and not is_field_read(context, f"{section}.{name}"):
                yield _report(context, section, name)
    for mark in policy.marks:
        if not is_read(context, mark):
            yield _report(context, "marks", mark.id)
    entries = [*policy.result_rules, *(entry for _, entry in selective_entries(policy))]
    selectors = [entry.finds for entry in entries if entry.finds is not None]
    used = {item for selector in selectors for item in selector.items}
    used |= {*policy.journal.redact, *string_constants(context)}
    used |= {*(policy.pins.finds if policy.pins is not None else ())}
    for name in policy.patterns:
        if not matches_any(name, used):
            yield _report(context, "patterns", name)


def is_read(context: LintContext, mark: Mark) -> bool:
    """Return whether an expression reads a mark, but for those of the mark itself."""
    return any(
        reads_field(program.reads, f"mark.{mark.id}")
        for path, program in context.expressions
        if path[:2] != ("marks", mark.id)
    )


def _report(context: LintContext, section: str, name: str) -> Finding:
    span = context.merged.span_of((section, name), key=True)
    return Finding(span, f"nothing uses the {section[:-1]} `{name}`")
