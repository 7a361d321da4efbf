"""Keys of a result's metadata that nothing looks at, or a limit that waits for such a key.

`outcomes.meta.non_advancing` names the keys by which a tool says that a result brings nothing new;
`no_progress` counts such results. One without the other does nothing.

Avoid:

    limits: {default: {no_progress: {max: 6}}}

Prefer:

    outcomes: {meta: {non_advancing: [no_new_information]}}
    limits: {default: {no_progress: {max: 6}}}
"""

from __future__ import annotations

from collections.abc import Iterator

from policyguard.compiler.build.entry_paths import level_path
from policyguard.lint.context import LintContext
from policyguard.lint.rule import Finding
from policyguard.model.limits import NoProgressLimit


def check(subject: LintContext) -> Iterator[Finding]:
    """Flags without a limit, and limits without a flag."""
    policy, where = subject.policy, subject.merged.span_of
    meta = policy.outcomes.meta
    waiting = [
        level
        for level, limits in policy.limits.items()
        if isinstance(limits.no_progress, NoProgressLimit)
    ]
    path = ("outcomes", "meta")
    if meta.non_advancing and not waiting:
        message = "no `no_progress` limit looks at these keys"
        yield Finding(where((*path, "non_advancing"), key=True), message)
    if not meta.non_advancing:
        for level in waiting:
            message = "no result is ever flagged as not advancing: this limit never refuses"
            hint = "name the keys of a result's metadata that say so: `outcomes.meta.non_advancing`"
            yield Finding(where((*level_path(level), "no_progress"), key=True), message, hint)
