"""The `{placeholders}` of a policy's messages."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

import msgspec

from policyguard.model.diagnostic import Diagnostic, Severity, did_you_mean, quote_text
from policyguard.model.policy import Policy

if TYPE_CHECKING:
    from policyguard.compiler.merge.layers import MergedPolicy
    from policyguard.engines.yaml_tree import ScalarNode

_TOKEN = re.compile(r"\{\{|\}\}|\{([^{}]*)\}|[{}]")
_CALL_FIELDS = (
    "tool",
    "server",
    "class",
    "command",
    "agent",
    "session",
    "batch",
    "args",
    "targets",
    "paths",
    "urls",
    "strings",
    "tags",
    "hints",
)
_NESTED_FIELDS = ("args", "tags", "hints")
"""Fields of `call` that have fields of their own."""
_LIMIT_FIELDS = ("limit", "used", "left", "retry_after")
"""Figures of a violation; a plain rule has none of them."""


class Placeholder(msgspec.Struct, frozen=True):
    """One placeholder: its dotted name, and from where to where it stands in the message."""

    name: str
    start: int
    end: int


class ParsedMessage(msgspec.Struct, frozen=True):
    """A message taken apart: literal texts and names alternate, beginning with a text.

    `stray` are the offsets of braces that belong to no placeholder.
    """

    parts: tuple[str, ...]
    placeholders: tuple[Placeholder, ...]
    stray_braces: tuple[int, ...]


def parse_message(text: str) -> ParsedMessage:
    """Take a message apart. `{{` and `}}` are braces."""
    parts, placeholders, stray = [""], [], []
    position = 0
    for found in _TOKEN.finditer(text):
        parts[-1] += text[position : found.start()]
        position = found.end()
        if found[1] is not None:
            name = found[1].strip()
            placeholders.append(Placeholder(name, *found.span()))
            parts += [name, ""]
        elif len(found[0]) == 2:
            parts[-1] += found[0][0]
        else:
            parts[-1] += found[0]
            stray.append(found.start())
    parts[-1] += text[position:]
    return ParsedMessage(tuple(parts), tuple(placeholders), tuple(stray))


def collect_message_fields(policy: Policy) -> frozenset[str]:
    """The dotted names that messages show."""
    texts = [text for rule in policy.rules for text in (rule.message, rule.instead)]
    texts += [text for budget in policy.budgets for text in (budget.message, budget.instead)]
    return frozenset(
        placeholder.name
        for text in texts
        if text is not None
        for placeholder in parse_message(text).placeholders
    )


def check_placeholders(policy: Policy, merged: MergedPolicy) -> Iterator[Diagnostic]:
    """What is wrong with the placeholders of all messages."""
    from policyguard.engines.yaml_tree import ScalarNode  # a policy that is known has no tree

    for section, entries in (("rules", policy.rules), ("budgets", policy.budgets)):
        for entry in entries:
            for field in ("message", "instead"):
                node = merged.node((section, entry.id, field))
                text = getattr(entry, field)
                if text is not None and isinstance(node, ScalarNode):
                    yield from _check_message(node, parse_message(text), section, policy, merged)


def _check_message(
    node: ScalarNode, message: ParsedMessage, section: str, policy: Policy, merged: MergedPolicy
) -> Iterator[Diagnostic]:
    for place in message.stray_braces:
        span = node.subspan(place, place + 1)
        brace = node.text[place]
        yield merged.diagnostic(
            "reference/placeholder",
            f"`{brace}` belongs to no placeholder",
            span,
            hint=f"write `{brace * 2}` for a brace",
        )
    for placeholder in message.placeholders:
        span = node.subspan(placeholder.start, placeholder.end)
        if section == "rules" and placeholder.name in _LIMIT_FIELDS:
            text = f"`{{{placeholder.name}}}` is always absent in the message of a rule"
            severity: Severity = "warning"
            yield merged.diagnostic("reference/placeholder", text, span, severity=severity)
        elif found := _explain_unknown(placeholder.name, policy):
            text, hint = found
            yield merged.diagnostic("reference/placeholder", text, span, hint=hint)


def _explain_unknown(name: str, policy: Policy) -> tuple[str, str | None] | None:
    """Why `name` is no placeholder, and what may have been meant; None where it is one."""
    root, *fields = name.split(".")
    if name in ("rule", *_LIMIT_FIELDS):
        return None
    if root == "call" and fields:
        if fields[0] not in _CALL_FIELDS:
            return f"`call` has no field {quote_text(fields[0])}", did_you_mean(
                fields[0], _CALL_FIELDS
            )
        if fields[0] == "tags" and len(fields) > 1:
            return _explain_unknown_tag(fields[1], policy)
        deep = fields[0] in _NESTED_FIELDS or len(fields) == 1
        return (
            None
            if deep and all(fields)
            else (f"{quote_text(f'{{{name}}}')} is no placeholder", None)
        )
    if root == "tags" and len(fields) == 1:
        return _explain_unknown_tag(fields[0], policy)
    hint = did_you_mean(name, ("rule", *_LIMIT_FIELDS, "call.tool", "call.args"))
    return f"{quote_text(f'{{{name}}}')} is no placeholder", hint


def _explain_unknown_tag(tag: str, policy: Policy) -> tuple[str, str | None] | None:
    if tag in policy.tags:
        return None
    return f"no tag is named {quote_text(tag)}", did_you_mean(tag, policy.tags)
