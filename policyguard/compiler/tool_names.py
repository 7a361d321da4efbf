"""Tools and arguments that a policy names, held against those that its `schemas` describe.

In expressions the types do this; here it is done for selectors, examples and messages.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from policyguard.cel.types import RecordType
from policyguard.compiler.layers import Layered
from policyguard.compiler.placeholders import template
from policyguard.compiler.tool_schemas import Tools
from policyguard.engines.yaml_tree import Mapping, Node, Path, Scalar, Sequence, child
from policyguard.model.diagnostic import Diagnostic, did_you_mean, quoted
from policyguard.model.entry import Example
from policyguard.model.policy import Policy

_SECTIONS = ("rules", "budgets", "result_rules")


def check_tools(policy: Policy, layered: Layered, tools: Tools) -> Iterator[Diagnostic]:
    """Names that mean nothing, in the files that the tools are known to."""
    for found in _names(layered):
        if found.source.file in tools.files:
            yield from _name(found, tools)
    for rule in policy.rules:
        for kind in ("match", "no_match"):
            for number, example in enumerate(getattr(rule.examples, kind)):
                path = ("rules", rule.id, "examples", kind, number)
                if layered.origin(path) in tools.files:
                    yield from _example(example, path, layered, tools)
    for section, entries in (("rules", policy.rules), ("budgets", policy.budgets)):
        for entry in entries:
            yield from _messages((section, entry.id), layered, tools)


def _names(layered: Layered) -> Iterator[Scalar]:
    """Every place where a tool is named, or a glob for tools."""
    tree = layered.tree
    around: list[Node | None] = []
    for section in _SECTIONS:
        around += _values(tree.get(section))
    for mark in _values(tree.get("marks")):
        around += _values(mark)
    classify = tree.get("classify")
    around += _values(child(classify, "classes") if classify is not None else None)
    for entry in around:
        selector = entry.get("tools") if isinstance(entry, Mapping) else None
        outside = selector.get("outside") if isinstance(selector, Mapping) else selector
        yield from (item for item in _values(outside) if isinstance(item, Scalar))
    limits = tree.get("limits")
    levels = child(limits, "tools") if limits is not None else None
    yield from (key for key, _ in levels.entries) if isinstance(levels, Mapping) else ()


def _values(node: Node | None) -> list[Node]:
    if isinstance(node, Mapping):
        return [value for _, value in node.entries]
    return list(node.items) if isinstance(node, Sequence) else []


def _name(node: Scalar, tools: Tools) -> Iterator[Diagnostic]:
    if tools.matching(node.text):
        return
    if "*" in node.text or "?" in node.text:
        message = f"{quoted(node.text)} matches none of the tools in `schemas`"
        yield node.source.diagnostic(
            "reference/unmatched-tools", message, node.span, severity="warning"
        )
    else:
        yield _unknown("tool", node.text, tools.names.known, node)


def _example(example: Example, path: Path, layered: Layered, tools: Tools) -> Iterator[Diagnostic]:
    path = path if layered.has((*path, example.tool)) else (*path, "call")
    called = layered.node(path)
    if not isinstance(called, Mapping) or example.tool not in called:
        return
    if example.tool not in tools.names.known:
        yield _unknown("tool", example.tool, tools.names.known, called.key(example.tool))
        return
    taken, given = tools.taken([example.tool]), called.get(example.tool)
    if isinstance(taken, RecordType) and isinstance(given, Mapping):
        for key, _ in given.entries:
            if key.text not in taken.fields:
                owner = quoted(example.tool)
                yield _unknown("argument", key.text, taken.fields, key, owner)


def _messages(path: Path, layered: Layered, tools: Tools) -> Iterator[Diagnostic]:
    """Placeholders for arguments that none of the tools has."""
    for field in ("message", "instead"):
        node = layered.node((*path, field))
        if not isinstance(node, Scalar) or node.source.file not in tools.files:
            continue
        for placeholder in template(node.text).placeholders:
            root, _, name = placeholder.name.partition("call.args.")
            taken = tools.arguments_at(path, layered)
            argument = name.partition(".")[0]
            if root or not name or not isinstance(taken, RecordType) or argument in taken.fields:
                continue
            span = node.stretch(placeholder.start, placeholder.end)
            message = f"no tool that this is about has the argument {quoted(argument)}"
            hint = did_you_mean(argument, taken.fields)
            yield layered.diagnostic("reference/unknown-argument", message, span, hint=hint)


def _unknown(
    what: str, name: str, known: Iterable[str], node: Scalar, owner: str = "`schemas`"
) -> Diagnostic:
    message = f"{owner} has no {what} {quoted(name)}"
    hint = did_you_mean(name, known)
    return node.source.diagnostic(f"reference/unknown-{what}", message, node.span, hint=hint)
