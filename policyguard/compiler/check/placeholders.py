"""Check the `{placeholders}` of messages."""

from __future__ import annotations

import re
from collections.abc import Iterator

from policyguard.compiler.build.entry_paths import Path, call_entries
from policyguard.compiler.build.messages import ParsedMessage, parse_message
from policyguard.compiler.merge.layers import MergedPolicy
from policyguard.engines.yaml_tree import ScalarNode
from policyguard.model.diagnostic import Diagnostic, Severity, did_you_mean, quote_text
from policyguard.model.policy import Policy

_CALL_FIELDS = (
    "tool",
    "server",
    "class",
    "classes",
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
"""Fields of `call` with nested fields."""
_LIMIT_FIELDS = ("limit", "used", "left", "retry_after")
"""Figures of a limit or budget; rules have none."""
_RULES = ("rules", "result_rules")


_DOUBLED = re.compile(r"\{\{ *([\w.]{1,60}) *\}\}")
"""A placeholder as other template languages have it."""


def check_placeholders(policy: Policy, merged: MergedPolicy) -> Iterator[Diagnostic]:
    """Report undefined placeholders in messages."""
    entries: list[tuple[Path, object]] = [*call_entries(policy)]
    entries += [(("result_rules", rule.id), rule) for rule in policy.result_rules]
    for path, entry in entries:
        for field in ("message", "instead"):
            text = getattr(entry, field, None)
            node = merged.node((*path, field))
            if text is not None and isinstance(node, ScalarNode):
                section = str(path[0])
                yield from _check_message(node, parse_message(text), section, policy, merged)


def _check_message(
    node: ScalarNode, message: ParsedMessage, section: str, policy: Policy, merged: MergedPolicy
) -> Iterator[Diagnostic]:
    for offset in message.stray_braces:
        span = node.subspan(offset, offset + 1)
        brace = node.text[offset]
        yield merged.diagnostic(
            "reference/placeholder",
            f"unmatched `{brace}` in a message",
            span,
            hint=f"write `{brace * 2}` for a literal brace",
        )
    for doubled in _DOUBLED.finditer(node.text):
        name = doubled[1]
        is_field = "." in name and name.split(".")[0] in _CALL_FIELDS
        if is_field or _explain_unknown(name, policy) is None:
            yield merged.diagnostic(
                "reference/placeholder",
                f"`{{{{{name}}}}}` is no placeholder: the message shows `{{{name}}}`",
                node.subspan(*doubled.span()),
                hint="write single braces",
                severity="warning",
            )
    for placeholder in message.placeholders:
        span = node.subspan(placeholder.start, placeholder.end)
        if section in _RULES and placeholder.name in _LIMIT_FIELDS:
            text = f"`{{{placeholder.name}}}` is always empty in the message of a rule"
            severity: Severity = "warning"
            yield merged.diagnostic("reference/placeholder", text, span, severity=severity)
        elif found := _explain_unknown(placeholder.name, policy):
            text, hint = found
            yield merged.diagnostic("reference/placeholder", text, span, hint=hint)


def _explain_unknown(name: str, policy: Policy) -> tuple[str, str | None] | None:
    """Return a message and hint if `name` is not a placeholder, else None."""
    root, *fields = name.split(".")
    message = f"{quote_text(f'{{{name}}}')} is not a placeholder"
    if name in ("rule", *_LIMIT_FIELDS):
        return None
    if root == "call" and fields:
        if fields[0] not in _CALL_FIELDS:
            hint = did_you_mean(fields[0], _CALL_FIELDS)
            return f"`call` has no field {quote_text(fields[0])}", hint
        if fields[0] == "tags" and len(fields) > 1:
            return _explain_unknown_tag(fields[1], policy)
        is_valid = all(fields) and (fields[0] in _NESTED_FIELDS or len(fields) == 1)
        return None if is_valid else (message, None)
    if root == "tags" and len(fields) == 1:
        return _explain_unknown_tag(fields[0], policy)
    if root in _CALL_FIELDS and root != "tags":
        return message, f"write {quote_text(f'{{call.{name}}}')}"
    return message, did_you_mean(name, ("rule", *_LIMIT_FIELDS, "call.tool", "call.args"))


def _explain_unknown_tag(tag: str, policy: Policy) -> tuple[str, str | None] | None:
    if tag in policy.tags:
        return None
    return f"no tag named {quote_text(tag)}", did_you_mean(tag, policy.tags)
