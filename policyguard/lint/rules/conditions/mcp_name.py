"""A comparison of a tool's own name with a full name, which is never true.

Hosts name the tool `delete` of the MCP server `fs` as `mcp__fs__delete`. For a policy the name is
taken apart: `call.tool` is `delete`, and `call.server` is `fs`. Selectors match both forms.

Avoid:

    when: call.tool == 'mcp__fs__delete'

Prefer:

    when: call.tool == 'delete' && call.server == 'fs'

Or, in an entry with selectors:

    tools: [mcp__fs__delete]
"""

from __future__ import annotations

from collections.abc import Iterator

from policyguard.lint.analysis.compared_names import (
    SESSION_COUNT,
    ComparedName,
    find_compared_names,
    find_listed_names,
)
from policyguard.lint.analysis.required_literals import leading_literals
from policyguard.lint.rule import Finding, LintContext
from policyguard.model.tool_name import MCP_PREFIX, parse_tool_name


def check(context: LintContext) -> Iterator[Finding]:
    """Report full names that an expression compares with a tool's own name."""
    for name in find_compared_names(context):
        if found := _explain(name):
            yield Finding(context.subspan(name.path, name.span), *found, severity="error")
    for path, item, listed, field in find_listed_names(context):
        tool, server, _ = parse_tool_name(item)
        if server and field == "call.tool":
            message = f"`call.tool in lists.{listed}` is never true of `{item}`"
            hint = f"select it with `tools: ${listed}`, or list `{tool}` here"
            yield Finding(context.merged.span_of(path), message, hint, severity="error")


def _explain(name: ComparedName) -> tuple[str, str] | None:
    """Return why a comparison with a full name is never true, and what to write instead."""
    field, text, part = name.field, name.text, name.part
    if part and field == "call.tool":
        return _explain_part(text, part)
    if part in ("startsWith", "contains") and field == "call.server" and text == MCP_PREFIX:
        return f"`call.server` never contains `{MCP_PREFIX}`", "write `call.server != ''`"
    tool, server, _ = parse_tool_name(text)
    if server and field == "call.tool":
        message = f"`call.tool` is never `{text}`, only `{tool}`"
        return message, f"write `call.tool == '{tool}' && call.server == '{server}'`"
    if server and field == SESSION_COUNT:
        message = f"no call counts as `{text}`: calls count under the tool's own name"
        return message, f"write `session.count('{tool}')`"
    return None


def _explain_part(text: str, part: str) -> tuple[str, str] | None:
    """Explain a text or regex that only full names contain.

    A regex that matches the own name as well (`^(?:mcp__fs__)?delete$`) is fine.
    """
    if part == "matches":
        literals = {one.text for one in leading_literals(text) if not one.ignore_case}
    else:
        literals = {text}
    for literal in sorted(literals):
        short = parse_tool_name(literal).tool
        if literal.startswith(MCP_PREFIX) and (short == literal or short not in literals):
            server = literal[len(MCP_PREFIX) :].partition("__")[0]
            hint = f"call.server == '{server}'" if server else "call.server != ''"
            return f"`call.tool` never contains `{literal}`", f"write `{hint}`"
    return None
