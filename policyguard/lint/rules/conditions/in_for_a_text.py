"""An `in` that looks for a piece of a text: CEL's `in` looks for an item of a list, or a key.

With a text on its right it is an error, so that a `when` counts as a match for every call, and an
`unless` for none.

Avoid:

    secrets: {tools: [bash], when: "'id_rsa' in call.args.command"}

Prefer:

    secrets: {tools: [bash], when: "call.command.contains('id_rsa')"}
"""

from __future__ import annotations

from collections.abc import Iterator

from policyguard.cel.syntax.ast import Binary, Constant, iter_tree
from policyguard.lint.analysis.satisfiability import value_name
from policyguard.lint.rule import Finding, LintContext


def check(context: LintContext) -> Iterator[Finding]:
    """Report texts that are looked for with `in` in an argument that holds a shell command."""
    commands = {f"call.args.{name}" for name in context.policy.classify.shell.arguments}
    for path, tree in context.cel_trees.items():
        if not context.owns(path):
            continue
        for node in iter_tree(tree):
            if not isinstance(node, Binary) or node.operator != "in":
                continue
            name, text = value_name(node.right), node.left
            if name in commands and isinstance(text, Constant) and isinstance(text.value, str):
                message = f"`in` looks for an item of a list, and `{name}` is a text"
                hint = "write `call.command.contains('…')`, or select `commands: […]`"
                yield Finding(context.subspan(path, node.span), message, hint)
