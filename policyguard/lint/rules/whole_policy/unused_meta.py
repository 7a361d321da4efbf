"""A `no_progress` limit without the metadata keys it needs, or such keys without the limit.

`outcomes.meta.non_advancing` names the metadata keys by which a tool reports a result without
progress; `no_progress` counts such results. Neither has an effect without the other.

Avoid:

    limits: {default: {no_progress: {max: 6}}}

Prefer:

    outcomes: {meta: {non_advancing: [no_new_information]}}
    limits: {default: {no_progress: {max: 6}}}
"""

from __future__ import annotations

from collections.abc import Iterator

from policyguard.compiler.build.entry_paths import level_path
from policyguard.lint.rule import Finding, LintContext
from policyguard.model.limits import NoProgressLimit


def check(context: LintContext) -> Iterator[Finding]:
    """Report metadata keys without a limit, and limits without metadata keys."""
    policy, span_of = context.policy, context.merged.span_of
    meta = policy.outcomes.meta
    limited_levels = [
        level
        for level, limits in policy.limits.items()
        if isinstance(limits.no_progress, NoProgressLimit)
    ]
    path = ("outcomes", "meta")
    if meta.non_advancing and not limited_levels:
        message = "no `no_progress` limit uses these keys"
        yield Finding(span_of((*path, "non_advancing"), key=True), message)
    if not meta.non_advancing:
        for level in limited_levels:
            message = (
                "this limit never refuses, because no metadata key marks results without progress"
            )
            hint = "name such keys in `outcomes.meta.non_advancing`"
            yield Finding(span_of((*level_path(level), "no_progress"), key=True), message, hint)
