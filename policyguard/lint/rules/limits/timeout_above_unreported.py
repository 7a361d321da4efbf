"""A timeout longer than `bounds.unreported`.

A call that has not been reported for `bounds.unreported` is given up: its slots in `concurrent`
budgets are freed, though its time is not over. `run`, `arun` and `@guard.tool` hold their calls as
long as they run; a host that calls `check` and `record` itself does not.

Avoid:

    limits: {tools: {train_*: {timeout: 2h}}}    # `unreported` is 1h by default

Prefer:

    limits: {tools: {train_*: {timeout: 2h}}}
    bounds: {unreported: 3h}
"""

from __future__ import annotations

from collections.abc import Iterator

from policyguard.compiler.build.entry_paths import level_path
from policyguard.lint.rule import Finding, LintContext
from policyguard.model.amounts import format_duration

_UNREPORTED = ("bounds", "unreported")


def check(context: LintContext) -> Iterator[Finding]:
    """Report each `timeout` above `bounds.unreported`, where this policy sets one of the two."""
    unreported = context.policy.bounds.unreported
    for level, limits in context.policy.limits.items():
        timeout = limits.timeout
        if not isinstance(timeout, int) or timeout <= unreported:
            continue
        path = (*level_path(level), "timeout")
        if context.merged.has(_UNREPORTED) and not context.owns(path):
            path = _UNREPORTED
        shown, given_up = format_duration(timeout), format_duration(unreported)
        yield Finding(
            context.merged.span_of(path),
            f"the timeout of {shown} is longer than `bounds.unreported` ({given_up}): a call is "
            "given up before its time is over",
            f"set `bounds: {{unreported: …}}` to more than {shown}",
        )
