"""A limit by class or server that a glob outranks.

Each kind of limit comes from the most specific level that has it: the tool's glob, then the class,
then the default. A glob such as `*` or `mcp__*` is a tool's glob, however much it matches, so the
limits of classes never apply to these tools. And a glob for names, `get_*`, outranks one for a
server, `mcp__prod__*`: reported if it is the weaker one.

Avoid:

    limits:
      classes: {delete: {repeat: {max: 1, same: call, window: all}}}
      tools: {"*": {repeat: {max: 8, same: call, window: all}}}

Prefer the default for what holds for all tools:

    limits:
      classes: {delete: {repeat: {max: 1, same: call, window: all}}}
      default: {repeat: {max: 8, same: call, window: all}}

And the full name of tools that have limits by name and by server:

    limits:
      tools:
        get_*: {failures: {max: 9}}
        mcp__prod__*: {failures: {max: 2}}
        mcp__prod__get_*: {failures: {max: 2}}
"""

from __future__ import annotations

from collections.abc import Iterator

from policyguard.compiler.build.entry_paths import level_path
from policyguard.compiler.build.selectors.selector import (
    globs_overlap,
    tool_glob_specificity,
)
from policyguard.lint.rule import Finding, LintContext
from policyguard.model.diagnostic import quote_text
from policyguard.model.limits import Limit, LimitLevel, limits_of
from policyguard.model.tool_name import MCP_PREFIX, join_tool_name, short_tool_glob

_KINDS = ("repeat", "cycle", "no_progress", "failures", "outage", "polling", "refusals", "timeout")


def check(context: LintContext) -> Iterator[Finding]:
    """Report globs whose limits replace those of classes, or of a server."""
    yield from _check_servers(context)
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


def _check_servers(context: LintContext) -> Iterator[Finding]:
    """Report globs for names whose limits replace stricter ones of a server."""
    by_glob = {
        level.partition(":")[2]: limits
        for level, limits in context.policy.limits.items()
        if level.startswith("tools:")
    }
    for glob, limits in by_glob.items():
        for full, of_server in by_glob.items():
            short = short_tool_glob(full)
            if short == full or short_tool_glob(glob) != glob or not globs_overlap(short, glob):
                continue
            server = full[len(MCP_PREFIX) :].partition("__")[0]
            if not server.strip("*?"):  # any server, which is no more specific than the default
                continue
            both = join_tool_name(glob, server)
            lost = [
                kind
                for kind in _KINDS
                if _is_weaker(getattr(limits, kind), getattr(of_server, kind))
                and getattr(by_glob.get(both), kind, None) is None
            ]
            if lost and tool_glob_specificity(glob) > tool_glob_specificity(full):
                kinds = ", ".join(f"`limits.tools.{full}.{kind}`" for kind in lost)
                message = f"{quote_text(glob)} outranks {quote_text(full)}; lost: {kinds}"
                hint = f"say what holds for {quote_text(both)}"
                span = context.merged.span_of(("limits", "tools", glob), key=True)
                yield Finding(span, message, hint)


def _is_weaker(limit: Limit | int | str | None, other: Limit | int | str | None) -> bool:
    """Return whether a limit replaces another one of its kind, and is not as strict."""
    if limit is None or other in (None, "none") or limit == other:
        return False
    size, other_size = getattr(limit, "max", limit), getattr(other, "max", other)
    return not isinstance(size, int) or not isinstance(other_size, int) or size > other_size


def _is_for_any_tool(glob: str) -> bool:
    """Return whether a glob names neither a tool nor a server."""
    return not glob.removeprefix("mcp__").strip("*?_")


def _lost_kinds(limits: LimitLevel, of_class: LimitLevel) -> Iterator[str]:
    """Yield the kinds of a class that a level for tools replaces."""
    for kind in _KINDS:
        if getattr(of_class, kind) in (None, "none"):
            continue
        replaced = getattr(limits, kind) is not None
        if kind in ("repeat", "cycle", "stale"):
            replaced = replaced or isinstance(limits.polling, Limit)
        elif kind == "polling":  # the class would replace both, but not those of a tool
            replaced = replaced or any(
                limits_of(limits, other) for other in ("repeat", "cycle", "stale")
            )
        if replaced:
            yield kind
