"""Check the tools and arguments that a policy names against its `schemas`.

This covers selectors, examples and messages; expressions are covered by types.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from policyguard.cel.types.types import RecordType
from policyguard.compiler.build.entry_paths import call_entries, rule_examples
from policyguard.compiler.build.messages import parse_message
from policyguard.compiler.check.tool_schemas import ToolCatalog
from policyguard.compiler.merge.layers import MergedPolicy
from policyguard.engines.yaml_tree import (
    MappingNode,
    Node,
    Path,
    ScalarNode,
    SequenceNode,
    get_child,
)
from policyguard.model.diagnostic import Diagnostic, did_you_mean, quote_text
from policyguard.model.policy import Policy

_SECTIONS = ("rules", "budgets", "result_rules")


def check_tool_names(
    policy: Policy, merged: MergedPolicy, tools: ToolCatalog
) -> Iterator[Diagnostic]:
    """Report unknown names in the files that `schemas` applies to."""
    for found in _tool_references(merged):
        if found.source.file in tools.policy_files:
            yield from _check_name(found, tools)
    for _, _, _, path in rule_examples(policy):
        if merged.origin(path) in tools.policy_files:
            yield from _check_example(path, merged, tools)
    for path, _ in call_entries(policy):
        yield from _check_messages(path, merged, tools)
    for rule in policy.result_rules:
        yield from _check_messages(("result_rules", rule.id), merged, tools)


def _tool_references(merged: MergedPolicy) -> Iterator[ScalarNode]:
    """Yield every tool name or glob."""
    tree = merged.tree
    containers: list[Node | None] = []
    for section in _SECTIONS:
        containers += _child_values(tree.get(section))
    for rule in _child_values(tree.get("rules")):
        cases = rule.get("cases") if isinstance(rule, MappingNode) else None
        containers += _child_values(cases)
    for mark in _child_values(tree.get("marks")):
        for events in _child_values(mark):  # one, or a list of them
            containers += _child_values(events) if isinstance(events, SequenceNode) else [events]
    classify = tree.get("classify")
    containers += _child_values(get_child(classify, "classes") if classify is not None else None)
    for entry in containers:
        selector = entry.get("tools") if isinstance(entry, MappingNode) else None
        outside = selector.get("outside") if isinstance(selector, MappingNode) else selector
        yield from (item for item in _child_values(outside) if isinstance(item, ScalarNode))
    limits = tree.get("limits")
    levels = get_child(limits, "tools") if limits is not None else None
    yield from (key for key, _ in levels.entries) if isinstance(levels, MappingNode) else ()


def _child_values(node: Node | None) -> list[Node]:
    if isinstance(node, MappingNode):
        return [value for _, value in node.entries]
    return list(node.items) if isinstance(node, SequenceNode) else []


def _check_name(node: ScalarNode, tools: ToolCatalog) -> Iterator[Diagnostic]:
    if tools.may_exist(node.text):
        return
    if "*" in node.text or "?" in node.text:
        message = f"{quote_text(node.text)} matches none of the tools in `schemas`"
        yield node.source.diagnostic(
            "reference/unmatched-tools", message, node.span, severity="warning"
        )
    else:
        yield _unknown_name("tool", node.text, tools.known_names(node.text), node, tools.title)


def _check_example(path: Path, merged: MergedPolicy, tools: ToolCatalog) -> Iterator[Diagnostic]:
    called = merged.node((*path, "call") if merged.has((*path, "call")) else path)
    assert isinstance(called, MappingNode)  # noqa: S101 - the schema says so
    ((named, arguments),) = called.entries
    if not tools.may_exist(named.text):
        yield _unknown_name("tool", named.text, tools.known_names(named.text), named, tools.title)
        return
    accepted = tools.arguments_of([named.text])
    if isinstance(accepted, RecordType) and isinstance(arguments, MappingNode):
        for key, _ in arguments.entries:
            if key.text not in accepted.fields:
                owner = quote_text(named.text)
                yield _unknown_name("argument", key.text, accepted.fields, key, owner)


def _check_messages(path: Path, merged: MergedPolicy, tools: ToolCatalog) -> Iterator[Diagnostic]:
    """Report placeholders for arguments that none of the tools has."""
    for field in ("message", "instead"):
        node = merged.node((*path, field))
        if not isinstance(node, ScalarNode) or node.source.file not in tools.policy_files:
            continue
        for placeholder in parse_message(node.text).placeholders:
            root, _, name = placeholder.name.partition("call.args.")
            accepted = tools.arguments_at(path, merged)
            argument = name.partition(".")[0]
            if (
                root
                or not name
                or not isinstance(accepted, RecordType)
                or argument in accepted.fields
            ):
                continue
            span = node.subspan(placeholder.start, placeholder.end)
            message = f"none of the entry's tools has the argument {quote_text(argument)}"
            hint = did_you_mean(argument, accepted.fields)
            yield merged.diagnostic("reference/unknown-argument", message, span, hint=hint)


def _unknown_name(
    kind: str, name: str, known: Iterable[str], node: ScalarNode, owner: str
) -> Diagnostic:
    message = f"{owner} has no {kind} {quote_text(name)}"
    hint = did_you_mean(name, known)
    return node.source.diagnostic(f"reference/unknown-{kind}", message, node.span, hint=hint)
