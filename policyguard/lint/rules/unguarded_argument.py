"""An argument that is read of calls that need not have it.

An expression that reads an absent argument has no value, and that counts against the call: a rule
matches, a budget refuses, a class is given. In an entry for any tool, or for a class of tools,
that refuses every call that has no such argument, whatever the rule was about.

Avoid:

    stay-here: {when: call.args.path.startsWith('/etc')}

Prefer to ask, or to name the tools that have the argument:

    stay-here: {when: has(call.args.path) && call.args.path.startsWith('/etc')}
    stay-here: {tools: [read_file, write_file], when: call.args.path.startsWith('/etc')}
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from policyguard.cel.syntax.tree import Expr, Has, Index, Select, iter_children
from policyguard.engines.yaml_tree import Path
from policyguard.evaluator.activation import Activation
from policyguard.lint.analysis.sample_calls import argumentless_activation
from policyguard.lint.analysis.satisfiability import value_name
from policyguard.lint.context import LintContext
from policyguard.lint.rule import Finding
from policyguard.model.effect import Effect
from policyguard.model.entry import SelectiveEntry, Selector
from policyguard.model.errors import ExpressionError

_ABSENT = re.compile(r"no such key: `(\w+)`")


class _Asked(NamedTuple):
    """An expression that is asked of calls of any tool, and what comes of an error in it."""

    path: Path
    classes: Selector | None
    harm: str


def check(subject: LintContext) -> Iterator[Finding]:
    """Expressions that have no value for a call without arguments, as a trial shows."""
    views: dict[Selector | None, Activation | None] = {}
    for path, classes, harm in _asked(subject):
        tree = subject.cel_trees.get(path)
        expression = subject.expressions.get(*path)
        if tree is None or expression is None or not any(_arguments(tree)):
            continue
        if classes not in views:
            views[classes] = argumentless_activation(subject, classes)
        view = views[classes]
        if view is None:
            continue
        try:
            expression(view)
        except ExpressionError as error:
            absent = _ABSENT.search(str(error))
            wanted = f"call.args.{absent[1]}" if absent else ""
            node = next((one for one in _arguments(tree) if value_name(one) == wanted), None)
            if node is not None:
                message = f"`{wanted}` may be absent, and then {harm}"
                hint = f"ask `has({wanted})` first, or name the tools that have it"
                yield Finding(subject.subspan(path, node.span), message, hint)


def _asked(subject: LintContext) -> Iterator[_Asked]:
    policy = subject.policy
    for rule in policy.rules:
        refuses = rule.effect >= Effect.ASK and rule.on_error >= Effect.ASK
        if refuses and _is_of_any_tool(rule):
            for key in ("when", "unless"):
                yield _Asked(("rules", rule.id, key), rule.classes, "the call is refused")
    for budget in policy.budgets:
        if _is_of_any_tool(budget) and budget.effect >= Effect.ASK:
            path: Path = ("budgets", budget.id)
            keys = [(*path, "per", place + 1) for place in range(len(budget.per.keys))]
            for inner in ((*path, "sum"), *keys):
                yield _Asked(inner, budget.classes, "the call is refused")
    for level in policy.limits:
        group, _, named = level.partition(":")
        selector = Selector(items=(named,)) if group == "classes" else None
        if group != "tools":
            path = ("limits", *level.split(":", 1), "repeat", "key")
            yield _Asked(path, selector, "the call is refused")
    for place, entry in enumerate(policy.classify.classes):
        if entry.words is None and entry.tools is None:
            path = ("classify", "classes", place, "when")
            yield _Asked(path, None, f"the call is of the class `{entry.class_}`")


def _is_of_any_tool(entry: SelectiveEntry) -> bool:
    """Whether an entry leaves open which tools it is about, and what must be in their calls."""
    if any((entry.commands, entry.paths, entry.hosts, entry.finds)):
        return False
    return all(
        selector is None or selector.outside or "*" in selector.items
        for selector in (entry.tools, entry.servers)
    )


def _arguments(node: Expr) -> Iterator[Expr]:
    """The arguments that an expression reads, those aside that it only asks for."""
    if isinstance(node, Select | Index) and re.fullmatch(r"call\.args\.\w+", value_name(node)):
        yield node
    if isinstance(node, Has):
        node = node.selection.operand
    for child in iter_children(node):
        yield from _arguments(child)
