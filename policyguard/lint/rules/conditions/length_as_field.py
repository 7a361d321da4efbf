"""A `.length` of an argument: CEL reads it as a field of that name, and has `size()` for lengths.

A text or list has no fields. Reading one is an error, so that a `when` counts as a match for every
call, and an `unless` for none. If the argument is an object with a field `length`, read it as
`call.args.range['length']`, or test with `has(…)` first.

Avoid:

    short: {tools: [write], when: call.args.text.length > 100}

Prefer:

    short: {tools: [write], when: size(call.args.text) > 100}
"""

from __future__ import annotations

from collections.abc import Iterator

from policyguard.cel.syntax.ast import Has, Select, iter_tree
from policyguard.lint.analysis.satisfiability import value_name
from policyguard.lint.rule import Finding, LintContext

_LENGTHS = ("length", "len")
_ARGUMENTS = "call.args."


def check(context: LintContext) -> Iterator[Finding]:
    """Report selections of a length from an argument that no `has` tests."""
    for path, tree in context.cel_trees.items():
        if not context.owns(path):
            continue
        tested = {value_name(node.selection) for node in iter_tree(tree) if isinstance(node, Has)}
        for node in iter_tree(tree):
            if not isinstance(node, Select) or node.field not in _LENGTHS:
                continue
            name, argument = value_name(node), value_name(node.operand)
            if argument.startswith(_ARGUMENTS) and name not in tested:
                message = f"`{name}` reads a field `{node.field}`, which texts and lists lack"
                hint = f"write `size({argument})`"
                yield Finding(context.subspan(path, node.span), message, hint)
