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

from policyguard.cel.syntax.ast import Call, Constant, Expr, TextSpan, iter_children
from policyguard.lint.analysis.compared_names import SESSION_COUNT, find_compared_names
from policyguard.lint.analysis.satisfiability import value_name
from policyguard.lint.rule import Finding, LintContext
from policyguard.model.tool_name import MCP_PREFIX, split_tool_name

_TEXT_FUNCTIONS = ("startsWith", "contains")


def check(context: LintContext) -> Iterator[Finding]:
    """Report full names that an expression compares with a tool's own name."""
    for path, tree in context.cel_trees.items():
        for span, message, hint in (*_find_full_names(tree), *_find_prefixes(tree)):
            yield Finding(context.subspan(path, span), message, hint, severity="error")


def _find_full_names(tree: Expr) -> Iterator[tuple[TextSpan, str, str]]:
    """Yield the span of each full name that is compared, with a message and what to write."""
    for field, text, span in find_compared_names(tree):
        tool, server = split_tool_name(text)
        if server and field == "call.tool":
            message = f"`call.tool` is never `{text}`, only `{tool}`"
            yield span, message, f"write `call.tool == '{tool}' && call.server == '{server}'`"
        elif server and field == SESSION_COUNT:
            message = f"no call counts as `{text}`: calls count under the tool's own name"
            yield span, message, f"write `session.count('{tool}')`"


def _find_prefixes(node: Expr) -> Iterator[tuple[TextSpan, str, str]]:
    """Yield the span of each prefix of full names that is searched for in `call.tool`."""
    match node:
        case Call(
            receiver=receiver, name=function, arguments=[Constant(raw_value=str(text)) as item]
        ) if function in _TEXT_FUNCTIONS and text.startswith(MCP_PREFIX):
            if receiver is not None and value_name(receiver) == "call.tool":
                server = text[len(MCP_PREFIX) :].partition("__")[0]
                hint = f"call.server == '{server}'" if server else "call.server != ''"
                yield item.span, f"`call.tool` never contains `{text}`", f"write `{hint}`"
    for child in iter_children(node):
        yield from _find_prefixes(child)
