"""An exception from a limit that is known by its position alone.

Of several limits of one kind, those without an `id` are numbered: `limits/default/repeat/2` is the
second. Another item in front of it moves the exception to another limit, and nothing says so. Give
the limit an `id`.

Avoid:

    limits: {default: {repeat: [{max: 4}, {max: 5, same: result}]}}
    exceptions:
      nightly: {rules: [limits/default/repeat/2], until: 2099-04-30, reason: OPS-1}

Prefer:

    limits: {default: {repeat: [{max: 4}, {id: same-answer, max: 5, same: result}]}}
    exceptions:
      nightly: {rules: [limits/default/repeat/same-answer], until: 2099-04-30, reason: OPS-1}
"""

from __future__ import annotations

from collections.abc import Iterator

from policyguard.compiler.build.exceptions import find_waived, is_glob, list_waivable
from policyguard.lint.rule import Finding, LintContext
from policyguard.model.limits import NamedLimit, iter_limits, limit_id, limits_of


def check(context: LintContext) -> Iterator[Finding]:
    """Report exceptions from limits that only their place in a list names."""
    numbered = set(_find_numbered(context))
    known = list_waivable(context.policy)
    for entry in context.policy.exceptions:
        for index, name in enumerate(entry.rules):
            for id_ in find_waived(name, known) & numbered if not is_glob(name) else ():
                message = f"`{id_}` is known by its position, which another limit may take"
                span = context.merged.span_of(("exceptions", entry.id, "rules", index))
                yield Finding(span, message, "give the limit an `id`, and name it by that")


def _find_numbered(context: LintContext) -> Iterator[str]:
    for level, limits in context.policy.limits.items():
        for kind, index, limit in iter_limits(limits):
            has_name = isinstance(limit, NamedLimit) and limit.id is not None
            if not has_name and len(limits_of(limits, kind)) > 1:
                yield limit_id(level, kind, index, limit)
