"""A limit by class that a glob for nearly all tools outranks.

Each kind of limit comes from the most specific level that has it: the tool's glob, then the class,
then the default. A glob such as `*` or `mcp__*` is a tool's glob, however much it matches, so the
limits of classes never apply to these tools.

Avoid:

    limits:
      classes: {delete: {repeat: {max: 1, same: call, window: all}}}
      tools: {"*": {repeat: {max: 8, same: call, window: all}}}

Prefer the default for what holds for all tools:

    limits:
      classes: {delete: {repeat: {max: 1, same: call, window: all}}}
      default: {repeat: {max: 8, same: call, window: all}}
"""

from __future__ import annotations

from collections.abc import Iterator

from policyguard.compiler.build.entry_paths import level_path
from policyguard.lint.rule import Finding, LintContext
from policyguard.model.diagnostic import quote_text
from policyguard.model.limits import Limit, LimitLevel

_KINDS = ("repeat", "cycle", "no_progress", "failures", "outage", "polling", "refusals", "timeout")


def check(context: LintContext) -> Iterator[Finding]:
    """Report globs for any tool whose limits replace those of classes."""
    levels = context.policy.limits
    for level, limits in levels.items():
        group, _, glob = level.partition(":")
        if group != "tools" or not _is_for_any_tool(glob):
            continue
        lost = [
            f"`limits.classes.{name}.{kind}`"
            for other, of_class in levels.items()
            for other_group, _, name in [other.partition(":")]
            if other_group == "classes"
            for kind in _lost_kinds(limits, of_class)
        ]
        if lost:
            message = f"{quote_text(glob)} outranks all classes; lost: {', '.join(lost)}"
            hint = "put it under `default`, or name tools"
            yield Finding(context.merged.span_of(level_path(level), key=True), message, hint)


def _is_for_any_tool(glob: str) -> bool:
    """Return whether a glob names neither a tool nor a server."""
    return not glob.removeprefix("mcp__").strip("*?_")


def _lost_kinds(limits: LimitLevel, of_class: LimitLevel) -> Iterator[str]:
    """Yield the kinds of a class that a level for tools replaces."""
    for kind in _KINDS:
        if getattr(of_class, kind) in (None, "none"):
            continue
        replaced = getattr(limits, kind) is not None
        if kind in ("repeat", "cycle"):
            replaced = replaced or isinstance(limits.polling, Limit)
        elif kind == "polling":  # the class would replace both, but not those of a tool
            replaced = replaced or any(
                isinstance(limit, Limit) for limit in (limits.repeat, limits.cycle)
            )
        if replaced:
            yield kind
