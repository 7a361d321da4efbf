"""An expression that reads an argument which the call may lack.

An expression that reads an absent argument fails to evaluate, and by default that counts against
the call: the rule matches, the budget refuses, the class is assigned. In an entry for any tool,
or for a class of tools, this affects every call without the argument, whatever the entry is for.

Avoid:

    stay-here: {when: call.args.path.inside('/etc')}

Prefer to test for the argument, or to name the tools that have it:

    stay-here: {when: has(call.args.path) && call.args.path.inside('/etc')}
    stay-here: {tools: [read_file, write_file], when: call.args.path.inside('/etc')}
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from policyguard.cel.syntax.ast import Expr, Has, Index, Select, iter_children
from policyguard.engines.yaml_tree import Path
from policyguard.evaluator.activation import Activation
from policyguard.lint.analysis.sample_calls import argumentless_activation
from policyguard.lint.analysis.satisfiability import value_name
from policyguard.lint.rule import Finding, LintContext
from policyguard.model.effect import Effect
from policyguard.model.entry import SelectiveEntry, Selector
from policyguard.model.errors import ExpressionError

_ABSENT = re.compile(r"no such key: `(\w+)`")


class _Expression(NamedTuple):
    """An expression evaluated for calls of any tool, and what an error in it causes."""

    path: Path
    classes: Selector | None
    consequence: str


def check(context: LintContext) -> Iterator[Finding]:
    """Report expressions that fail to evaluate for a call without arguments."""
    activations: dict[Selector | None, Activation | None] = {}
    for path, classes, consequence in _expressions(context):
        tree = context.cel_trees.get(path)
        expression = context.expressions.get(*path)
        if tree is None or expression is None or not any(_argument_reads(tree)):
            continue
        if classes not in activations:
            activations[classes] = argumentless_activation(context, classes)
        activation = activations[classes]
        if activation is None:
            continue
        try:
            expression(activation)
        except ExpressionError as error:
            absent = _ABSENT.search(str(error))
            argument = f"call.args.{absent[1]}" if absent else ""
            for read in _argument_reads(tree):
                if value_name(read) == argument:
                    message = f"`{argument}` may be absent; then {consequence}"
                    hint = f"test `has({argument})` first, or name the tools that have it"
                    yield Finding(context.subspan(path, read.span), message, hint)
                    break


def _expressions(context: LintContext) -> Iterator[_Expression]:
    policy = context.policy
    for rule in policy.rules:
        if rule.cases:
            continue  # where one cannot be evaluated, the rest is read too
        refuses = rule.effect >= Effect.ASK and rule.on_error >= Effect.ASK
        if refuses and _covers_any_tool(rule):
            for key in ("when", "unless"):
                yield _Expression(("rules", rule.id, key), rule.classes, "the call is refused")
    for budget in policy.budgets:
        if _covers_any_tool(budget) and budget.effect >= Effect.ASK:
            path: Path = ("budgets", budget.id)
            keys = [(*path, "per", index + 1) for index in range(len(budget.per.keys))]
            for key_path in ((*path, "sum"), *keys):
                yield _Expression(key_path, budget.classes, "the call is refused")
    for level in policy.limits:
        group, _, name = level.partition(":")
        selector = Selector(items=(name,)) if group == "classes" else None
        if group != "tools":
            path = ("limits", *level.split(":", 1), "repeat", "key")
            yield _Expression(path, selector, "the call is refused")
    for index, entry in enumerate(policy.classify.classes):
        if entry.words is None and entry.tools is None:
            path = ("classify", "classes", index, "when")
            yield _Expression(path, None, f"the call gets the class `{entry.class_}`")


def _covers_any_tool(entry: SelectiveEntry) -> bool:
    """Return whether an entry covers any tool and requires nothing of its calls."""
    if any((entry.commands, entry.paths, entry.hosts, entry.finds)):
        return False
    return all(
        selector is None or selector.outside or "*" in selector.items
        for selector in (entry.tools, entry.servers)
    )


def _argument_reads(node: Expr) -> Iterator[Expr]:
    """Yield the arguments an expression reads, except those it only tests with `has()`."""
    if isinstance(node, Select | Index) and re.fullmatch(r"call\.args\.\w+", value_name(node)):
        yield node
    if isinstance(node, Has):
        node = node.selection.operand
    for child in iter_children(node):
        yield from _argument_reads(child)
