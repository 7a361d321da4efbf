"""Hints on how to write a value that has another shape than the schema expects."""

from __future__ import annotations

import re

from policyguard.compiler.load import schema
from policyguard.engines.json_schema import ValidationProblem
from policyguard.engines.yaml_tree import Node, Path, ScalarNode
from policyguard.model.diagnostic import quote_text

MAX_SHOWN_CHARS = 60
"""The longest text of the author to repeat in a hint."""
_MAX_KEYS = 6
_FLOW_SYNTAX = re.compile(r"[][{},]|: ")


def takes_maximum(problem: ValidationProblem) -> bool:
    """Return whether a map in this place has a key `max`."""
    return "max" in schema.find_keys(dict(problem.schema))


def map_hint(problem: ValidationProblem) -> str | None:
    """Return a hint on how to write the value as a map."""
    value, key = problem.value, problem.path[-1] if problem.path else ""
    if key in problem.schema.get("properties", {}):
        return f"`{key}` is in the place of a name: indent it further, as a key of its entry"
    if isinstance(value, list):
        if not isinstance(problem.schema.get("additionalProperties"), dict):
            return _name_keys(problem) or "write its keys without `-`: `key: value`"
        first = value[0] if value else None
        if isinstance(first, dict):
            named = next((one for one in first if isinstance(first[one], dict)), None)
            first = first.get("id") or first.get("name") or named
        name = display_name(first)
        return f"write each entry under its name, without `-`: `{name}: …`"
    if isinstance(value, bool):
        if not value and key == "learn":
            return "omit it; where it is inherited, write `learn: {blame: []}` to learn nothing"
        if not value:
            return f"omit `{key}`"
        if not problem.schema.keys() & {"minProperties", "required", "oneOf", "anyOf"}:
            return _name_keys(problem) or f"write `{key}: {{}}` for its defaults, or its keys in it"
    if value is None and not problem.path:
        return "a policy begins with `policyguard: 1` and `name: …`"
    if value is None:
        return f"`{key}` is empty: indent its keys further"
    if type(value) is int and "repeat" in problem.schema.get("properties", {}):
        return f"write `{{repeat: {{max: {value}}}}}`, or cap all its calls with a budget"
    if isinstance(value, str) and 0 < len(value) <= MAX_SHOWN_CHARS:
        keys = schema.find_keys(dict(problem.schema))
        if problem.schema.get("maxProperties") == 1:  # a call
            return f"write {quote_text(f'{{{value}: {{}}}}')}"
        if {"text", "error"} <= keys:
            return "write `{text: …}`, or `{error: …}` for a failure"
    return _name_keys(problem)


def _name_keys(problem: ValidationProblem) -> str | None:
    """Name the keys of the map that is expected, if they are few."""
    known = [f"`{key}`" for key in problem.schema.get("properties", ())]
    return f"write a map with its keys: {', '.join(known)}" if 0 < len(known) <= _MAX_KEYS else None


def expression_hint(value: object) -> str:
    """Return a hint for a list or map in place of a CEL expression."""
    if isinstance(value, list):
        return "write one expression, with `&&` or `||` between its parts"
    return "write an expression such as `call.args.amount > 200`"


def items_hint(problem: ValidationProblem) -> str | None:
    """Return a hint on how to write a map of entries as a list."""
    needed = schema.resolve_ref(problem.schema.get("items", {})).get("required", ())
    if not needed or not problem.value:
        return None
    name = display_name(next(iter(problem.value)))
    return f"order matters here: write each entry as an item, `- {needed[0]}: {name}`"


def display_name(name: object, other: str = "name") -> str:
    """Return a name short enough for a hint, or `other`."""
    return name if isinstance(name, str) and 0 < len(name) <= MAX_SHOWN_CHARS else other


def list_source(node: Node | None) -> str | None:
    """Return a scalar's source in brackets, or None if that would change its meaning."""
    if not isinstance(node, ScalarNode) or node.style in ("|", ">"):
        return None
    text = node.source.text[node.start : node.end]
    return f"[{text}]" if node.style or not _FLOW_SYNTAX.search(text) else None


def constant_hint(key: str, value: bool) -> str:
    """Return a hint for a condition that is constant."""
    if (key == "when") is not value:
        return "the entry matches no call: remove it"
    then = "match every call" if value else "exempt no call"
    return f'omit `{key}` to {then}, or quote it: `"{str(value).lower()}"`'


def command_hint(text: str, path: Path) -> str | None:
    """Return how to select calls by a command that stands in the place of a tool's name."""
    if "tools" not in path or path[0] == "result_rules" or "'" in text:
        return None
    if path[0] == "limits":
        condition = quote_text(f"call.command.only_runs(['{text}'])")
        return (
            f"for a command, define a class in `classify.classes` by `when:` {condition}, and "
            "write its limits under `limits.classes`"
        )
    return f"for a command, write {quote_text(f'commands: [{text}]')}"
