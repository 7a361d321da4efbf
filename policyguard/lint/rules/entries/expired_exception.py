"""An exception whose last day is over, or near.

After `until` an exception waives nothing: what it allowed is refused again, and the entry only
misleads its next reader. Remove it, or give it another day, with a reason that still holds. Before
that, lint warns for as long as the exception's `warn_before` says (14 days by default).

Avoid:

    migration: {rules: [change-window], until: 2020-04-30, reason: OPS-1}

Prefer:

    migration: {rules: [change-window], until: 2099-04-30, reason: OPS-2 prolongs OPS-1}
"""

from __future__ import annotations

from collections.abc import Iterator

from policyguard.compiler.build.exceptions import parse_end
from policyguard.lint.rule import Finding, LintContext
from policyguard.model.amounts import format_duration

_DAY = 24 * 60 * 60 * 1_000_000_000


def check(context: LintContext) -> Iterator[Finding]:
    """Report exceptions that have expired, and those that soon will."""
    for entry in context.policy.exceptions:
        end = parse_end(entry.until)
        if end is None:
            continue
        span = context.merged.span_of(("exceptions", entry.id, "until"))
        left = end - context.now
        if left <= 0:
            message = f"the exception `{entry.id}` has expired: it waives nothing any more"
            hint = "remove it, or give it another day"
            yield Finding(span, message, hint, severity="error")
        elif left <= entry.warn_before:
            shown = format_duration(left // _DAY * _DAY) if left >= _DAY else "less than a day"
            message = f"the exception `{entry.id}` expires in {shown}"
            yield Finding(span, message, "remove what needs it, or give it another day")
