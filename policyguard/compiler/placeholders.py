"""The `{placeholders}` of a policy's messages."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

import msgspec

from policyguard.model.diagnostic import Diagnostic, Severity, did_you_mean, quoted
from policyguard.model.policy import Policy

if TYPE_CHECKING:
    from policyguard.compiler.layers import Layered
    from policyguard.engines.yaml_tree import Scalar

_PART = re.compile(r"\{\{|\}\}|\{([^{}]*)\}|[{}]")
_CALL = (
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
_OPEN = ("args", "tags", "hints")
"""Fields of `call` that have fields of their own."""
_FIGURES = ("limit", "used", "left", "retry_after")
"""Figures of a violation; a plain rule has none of them."""


class Placeholder(msgspec.Struct, frozen=True):
    """One placeholder: its dotted name, and from where to where it stands in the message."""

    name: str
    start: int
    end: int


class Template(msgspec.Struct, frozen=True):
    """A message taken apart: literal texts and names alternate, beginning with a text.

    `stray` are the offsets of braces that belong to no placeholder.
    """

    parts: tuple[str, ...]
    placeholders: tuple[Placeholder, ...]
    stray: tuple[int, ...]


def template(text: str) -> Template:
    """Take a message apart. `{{` and `}}` are braces."""
    parts, placeholders, stray = [""], [], []
    position = 0
    for found in _PART.finditer(text):
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
    return Template(tuple(parts), tuple(placeholders), tuple(stray))


def told_in_messages(policy: Policy) -> frozenset[str]:
    """The dotted names that messages show."""
    texts = [text for rule in policy.rules for text in (rule.message, rule.instead)]
    texts += [text for budget in policy.budgets for text in (budget.message, budget.instead)]
    return frozenset(
        placeholder.name
        for text in texts
        if text is not None
        for placeholder in template(text).placeholders
    )


def check_placeholders(policy: Policy, layered: Layered) -> Iterator[Diagnostic]:
    """What is wrong with the placeholders of all messages."""
    from policyguard.engines.yaml_tree import Scalar  # a policy that is known has no tree

    for section, entries in (("rules", policy.rules), ("budgets", policy.budgets)):
        for entry in entries:
            for field in ("message", "instead"):
                node = layered.node((section, entry.id, field))
                text = getattr(entry, field)
                if text is not None and isinstance(node, Scalar):
                    yield from _check(node, template(text), section, policy, layered)


def _check(
    node: Scalar, message: Template, section: str, policy: Policy, layered: Layered
) -> Iterator[Diagnostic]:
    for place in message.stray:
        span = node.stretch(place, place + 1)
        brace = node.text[place]
        yield layered.diagnostic(
            "reference/placeholder",
            f"`{brace}` belongs to no placeholder",
            span,
            hint=f"write `{brace * 2}` for a brace",
        )
    for placeholder in message.placeholders:
        span = node.stretch(placeholder.start, placeholder.end)
        if section == "rules" and placeholder.name in _FIGURES:
            text = f"`{{{placeholder.name}}}` is always absent in the message of a rule"
            severity: Severity = "warning"
            yield layered.diagnostic("reference/placeholder", text, span, severity=severity)
        elif found := _unknown(placeholder.name, policy):
            text, hint = found
            yield layered.diagnostic("reference/placeholder", text, span, hint=hint)


def _unknown(name: str, policy: Policy) -> tuple[str, str | None] | None:
    """Why `name` is no placeholder, and what may have been meant; None where it is one."""
    root, *fields = name.split(".")
    if name in ("rule", *_FIGURES):
        return None
    if root == "call" and fields:
        if fields[0] not in _CALL:
            return f"`call` has no field {quoted(fields[0])}", did_you_mean(fields[0], _CALL)
        if fields[0] == "tags" and len(fields) > 1:
            return _unknown_tag(fields[1], policy)
        deep = fields[0] in _OPEN or len(fields) == 1
        return (
            None if deep and all(fields) else (f"{quoted(f'{{{name}}}')} is no placeholder", None)
        )
    if root == "tags" and len(fields) == 1:
        return _unknown_tag(fields[0], policy)
    hint = did_you_mean(name, ("rule", *_FIGURES, "call.tool", "call.args"))
    return f"{quoted(f'{{{name}}}')} is no placeholder", hint


def _unknown_tag(tag: str, policy: Policy) -> tuple[str, str | None] | None:
    if tag in policy.tags:
        return None
    return f"no tag is named {quoted(tag)}", did_you_mean(tag, policy.tags)
