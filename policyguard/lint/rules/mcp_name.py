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

from policyguard.cel.syntax.ast import (
    Binary,
    Call,
    Constant,
    Expr,
    ListLiteral,
    TextSpan,
    iter_children,
)
from policyguard.lint.analysis.satisfiability import value_name
from policyguard.lint.rule import Finding, LintContext
from policyguard.model.tool_name import MCP_PREFIX, split_tool_name

_TEXT_FUNCTIONS = ("startsWith", "contains")


def check(context: LintContext) -> Iterator[Finding]:
    """Report full names that an expression compares with a tool's own name."""
    for path, tree in context.cel_trees.items():
        for span, message, hint in _find_full_names(tree):
            yield Finding(context.subspan(path, span), message, hint, severity="error")


def _find_full_names(node: Expr) -> Iterator[tuple[TextSpan, str, str]]:
    """Yield the span of each full name, with a message and what to write."""
    match node:
        case Binary(operator="==" | "!=" | "in", left=left, right=right):
            if value_name(left) == "call.tool":
                yield from _compared(right)
            elif value_name(right) == "call.tool":
                yield from _compared(left)
        case Call(
            receiver=receiver, name=function, arguments=[Constant(raw_value=str(text)) as item]
        ):
            owner = value_name(receiver) if receiver is not None else ""
            if owner == "call.tool" and function in _TEXT_FUNCTIONS and text.startswith(MCP_PREFIX):
                server = text[len(MCP_PREFIX) :].partition("__")[0]
                hint = f"call.server == '{server}'" if server else "call.server != ''"
                yield item.span, f"`call.tool` never contains `{text}`", f"write `{hint}`"
            elif owner == "session" and function == "count" and split_tool_name(text)[1]:
                message = f"no call counts as `{text}`: calls count under the tool's own name"
                yield item.span, message, f"write `session.count('{split_tool_name(text)[0]}')`"
    for child in iter_children(node):
        yield from _find_full_names(child)


def _compared(node: Expr) -> Iterator[tuple[TextSpan, str, str]]:
    for item in node.items if isinstance(node, ListLiteral) else [node]:
        if isinstance(item, Constant) and isinstance(item.raw_value, str):
            tool, server = split_tool_name(item.raw_value)
            if server:
                message = f"`call.tool` is never `{item.raw_value}`, only `{tool}`"
                hint = f"write `call.tool == '{tool}' && call.server == '{server}'`"
                yield item.span, message, hint
