"""Messages for values that the schema rejects."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from typing import Any, NamedTuple

from policyguard.compiler.load import scalars, schema
from policyguard.compiler.load.amount_hints import (
    explain_cost,
    explain_date,
    explain_duration,
    explain_number,
    explain_reference,
)
from policyguard.compiler.load.foreign_words import (
    explain_call,
    explain_key,
    explain_list,
    explain_single_key,
    explain_time,
    explain_value,
)
from policyguard.compiler.load.shape_hints import (
    MAX_SHOWN_CHARS,
    command_hint,
    constant_hint,
    display_name,
    expression_hint,
    items_hint,
    list_source,
    map_hint,
    takes_maximum,
)
from policyguard.engines import yaml_scalars
from policyguard.engines.json_schema import ValidationProblem
from policyguard.engines.yaml_tree import Node, ScalarNode
from policyguard.model import diagnostic
from policyguard.model.diagnostic import did_you_mean


class Message(NamedTuple):
    """Code, message and help of a diagnostic.

    `replacement` is YAML that replaces the value, if the author certainly meant it.
    """

    code: str
    message: str
    hint: str | None = None
    replacement: str | None = None


_TYPE_LABELS = {
    "array": "a list",
    "boolean": "`true` or `false`",
    "integer": "a whole number",
    "null": "nothing",
    "number": "a number",
    "object": "a map",
    "string": "text",
}
_SCALAR_LABELS = {
    "cel": "a CEL expression",
    "duration": "a duration",
    "count": "a whole number",
    "number": "a number",
    "regex": "a regular expression",
    "glob": "a glob",
    "time": "a time",
    "date": "a date",
}
_MISSING_HINTS = {
    "policyguard": "begin the file with `policyguard: 1`",
    "name": "add `name: my-policy`",
}
_LAST_DAY = "name the last day, `until: 2026-04-30`: an exception has an end"
_NUMBER = re.compile(r"[-+]?[0-9]+(?:\.[0-9]+)?")
_NUMERIC = ("count", "number", "duration")
_WHITESPACE = re.compile(r"\s")
_GLOB = r"^[^\s\[\]{}!]+$"
_CONDITIONS = ("when", "unless")
_MAX_SECTIONS = 3
_EXAMPLE_KEYS = {"tags", "roles", "user", "agent", "session", "marks", "at"}


def describe_problem(problem: ValidationProblem, node: Node | None) -> Message:
    """Return the message for `problem`. `node` is the value at its path, if there is one."""
    match problem.keyword:
        case "additionalProperties":
            return _describe_unknown_key(problem, node)
        case "propertyNames":
            return _describe_name(problem)
        case "required":
            missing = next(key for key in problem.expected if key not in problem.value)
            hint = _MISSING_HINTS.get(missing) if not problem.path else None
            hint = _LAST_DAY if (missing, problem.path[:1]) == ("until", ("exceptions",)) else hint
            return Message("schema/missing-key", f"{_owner(problem)} needs `{missing}`", hint)
        case "dependentRequired":
            return _describe_dependent(problem)
        case "not":
            first, second = problem.expected["required"]
            return Message("schema/conflict", f"`{first}` and `{second}` exclude each other")
        case "anyOf" | "oneOf" if all("required" in branch for branch in problem.expected):
            return _describe_choice(problem)
        case "minItems" | "maxItems" if problem.expected > 1:
            bound = "at least" if problem.keyword == "minItems" else "at most"
            message = f"{_owner(problem)} takes {bound} {problem.expected} items"
            return Message("schema/value", f"{message}, not {len(problem.value)}")
        case "minItems" | "minLength" | "minProperties":
            hint = "write its value, or omit the key" if problem.keyword == "minItems" else None
            return Message("schema/empty", f"{_owner(problem)} is empty", hint)
        case "maxLength":
            return Message("schema/too-long", f"longer than {problem.expected:,} characters")
        case "maxProperties":
            return _describe_too_many(problem)
        case "minimum":
            message = f"{quote_value(problem.value)} is too small: at least {problem.expected}"
            return Message("schema/value", message)
        case "exclusiveMinimum":
            message = f"{quote_value(problem.value)} is too small: more than {problem.expected}"
            return Message("schema/value", message, "omit the key")
        case "maximum":
            message = f"{quote_value(problem.value)} is too large: at most {problem.expected}"
            return Message("schema/value", message)
        case "pattern":
            return _describe_pattern(problem, node)
        case "type" | "enum" | "const" | "anyOf" | "oneOf":
            return _describe_mismatch(problem, node)
        case _:
            return Message("schema/value", f"{quote_value(problem.value)} is not allowed here")


def quote_value(value: object) -> str:
    """Return a value in backticks, or `a list` or `a map`."""
    if isinstance(value, dict | list):
        return _TYPE_LABELS[schema.json_type(value)]
    if value is None or isinstance(value, bool):
        return f"`{json.dumps(value)}`"
    return diagnostic.quote_text(str(value))


def _owner(problem: ValidationProblem) -> str:
    named = [step for step in problem.path if isinstance(step, str)]
    if not named:
        return str(problem.schema.get("x-name", "the policy"))
    item = isinstance(problem.path[-1], int)
    return f"an item of `{named[-1]}`" if item else f"`{named[-1]}`"


def _describe_too_many(problem: ValidationProblem) -> Message:
    if problem.expected > 1:
        message = f"{_owner(problem)} has more than {problem.expected:,} entries"
        return Message("schema/too-long", message)
    name = problem.schema.get("x-name", "example")
    hint = "write each as a separate item"
    if written := explain_call(problem.value, problem.path[-1]):
        return Message(
            "schema/conflict", "a call is the tool's name and arguments", f"write {written}"
        )
    if not problem.value.keys().isdisjoint(_EXAMPLE_KEYS):
        hint = "put the call under `call`, beside the other keys"
    return Message("schema/conflict", f"several calls in one {name}", hint)


def _describe_unknown_key(problem: ValidationProblem, node: Node | None) -> Message:
    key = str(problem.path[-1])
    deprecated = _deprecated(problem)
    known = [name for name in problem.schema.get("properties", ()) if name not in deprecated]
    foreign = explain_key(key, known, node)
    if foreign is not None:
        return Message("schema/unknown-key", f"unknown key {quote_value(key)}", foreign)
    inside = schema.find_sections_with(key, dict(problem.schema))
    if 1 <= len(inside) <= _MAX_SECTIONS:
        return Message(
            "schema/unknown-key",
            f"unknown key {quote_value(key)} here",
            f"it belongs under {_join_or(f'`{section}`' for section in inside)}",
        )
    hint = did_you_mean(key, known)
    if hint is None and set(known) == {"default", "classes", "tools"}:
        hint = f"limits of a tool go under `tools`: `tools: {{{display_name(key)}: …}}`"
    if hint is None and len(known) <= 8:
        hint = "known here: " + ", ".join(f"`{name}`" for name in known)
    return Message("schema/unknown-key", f"unknown key {quote_value(key)}", hint)


def _deprecated(problem: ValidationProblem) -> set[str]:
    properties = problem.schema.get("properties", {})
    return {key for key, shape in properties.items() if shape.get("deprecated")}


def _describe_name(problem: ValidationProblem) -> Message:
    message = f"{quote_value(problem.path[-1])} is not a valid name here"
    return Message(
        "schema/name", message, _whitespace_hint(problem) or problem.schema.get("x-hint")
    )


def _whitespace_hint(problem: ValidationProblem) -> str | None:
    """Return a hint for a glob with white space."""
    text = str(problem.path[-1] if problem.keyword == "propertyNames" else problem.value)
    if problem.expected != _GLOB or len(text) > MAX_SHOWN_CHARS or not _WHITESPACE.search(text):
        return None
    if "," in text and isinstance(problem.path[-1], int):
        items = ", ".join(part.strip() for part in text.split(",") if part.strip())
        return f"write an item for each: `[{items}]`"
    meant = _WHITESPACE.sub("?", text.strip())
    if meant == text.strip():
        return f"globs contain no white space: write `{meant}`"
    command = command_hint(text.strip(), problem.path)
    more = f"; {command}" if command else ""
    return (
        f"globs contain no white space: write `{meant}`, where `?` matches any one character{more}"
    )


def _describe_dependent(problem: ValidationProblem) -> Message:
    given, needed = next(
        (key, other)
        for key, others in problem.expected.items()
        for other in others
        if key in problem.value and other not in problem.value
    )
    return Message("schema/missing-key", f"`{given}` needs `{needed}` beside it")


def _describe_choice(problem: ValidationProblem) -> Message:
    keys = [key for branch in problem.expected for key in branch["required"]]
    given = [f"`{key}`" for key in keys if key in problem.value]
    names = ", ".join(f"`{key}`" for key in keys if key not in _deprecated(problem))
    if len(given) > 1:
        hint = "write an entry for each" if "calls" in keys else None
        message = f"{_owner(problem)} has {' and '.join(given)}; keep exactly one"
        return Message("schema/conflict", message, hint)
    if keys == ["sum", "distinct"]:
        most = problem.value["max"]
        if (cost := explain_cost(str(most))) is not None:
            hint = f"for money, write `cost: {cost}` in its place"
        else:
            hint = f"to count calls, write {diagnostic.quote_text(f'calls: {most}')}"
        hint = None if "calls" in problem.value else hint
        message = "`max` needs `sum` or `distinct` beside it"
        return Message("schema/missing-key", message, hint)
    amount = "one" if problem.keyword == "oneOf" else "at least one"
    hint = 'to cover every call, write `tools: ["*"]`' if "tools" in keys else None
    return Message("schema/missing-key", f"{_owner(problem)} needs {amount} of {names}", hint)


def _describe_pattern(problem: ValidationProblem, node: Node | None) -> Message:
    scalar = problem.schema.get("x-scalar", "")
    found = _describe_yaml_trap(scalar, node)
    if found:
        return found
    hint = _whitespace_hint(problem) or problem.schema.get("x-hint")
    if scalar == "duration" and scalars.parse_duration(problem.value) == 0:
        message = f"{quote_value(problem.value)} is too short: at least `1ms`"
        return Message("schema/value", message, "omit the key, or switch a limit off with `none`")
    if scalar in _SCALAR_LABELS:
        message = f"{quote_value(problem.value)} is not {_SCALAR_LABELS[scalar]}"
        if (reference := explain_reference(problem.value)) is not None:
            hint = reference
        elif scalar == "duration":
            hint = explain_duration(problem.value) or hint
        elif scalar in _NUMERIC:
            hint = explain_number(problem.value) or hint
        elif scalar == "date":
            hint = explain_date(problem.value) or hint
        return Message(
            f"scalar/{scalar}", message, explain_time(problem.value, problem.path[-1]) or hint
        )
    if problem.expected == r"\S":
        return Message("schema/empty", f"{_owner(problem)} needs a reason", hint)
    return Message(
        "schema/value", f"{quote_value(problem.value)} does not have the expected form", hint
    )


def _describe_mismatch(problem: ValidationProblem, node: Node | None) -> Message:
    """Return the message for a value of the wrong type, or outside the allowed values."""
    value = problem.value
    expected = _expected(problem.keyword, problem.expected, problem.schema)
    yaml_trap = _describe_yaml_trap(expected.scalar, node)
    if yaml_trap:
        return yaml_trap
    if expected.values and isinstance(value, str):
        key = str(problem.path[-1]) if problem.path else ""
        hint = explain_value(value, key, expected.values) or did_you_mean(value, expected.values)
        return Message("schema/value", f"{quote_value(value)} is not {expected.text}", hint)
    if "a duration" in expected.text and schema.json_type(value) == "number":
        message = f"{quote_value(value)} is a number, but a duration is expected"
        return Message("scalar/duration", message, f"write `{value}s`")
    hint = problem.schema.get("x-hint") if problem.keyword == "const" else None
    hint = hint or explain_single_key(value, expected.values)
    written = None
    if expected.text == "a map":
        hint = map_hint(problem)
    elif expected.text == _SCALAR_LABELS["cel"] and isinstance(value, dict | list):
        hint = expression_hint(value)
    elif "none" in expected.values and (value is False or value is None):
        hint = "write `none` to switch it off"
    elif "a map" in expected.text and type(value) is int and takes_maximum(problem):
        hint = f"write `{{max: {value}}}`"
    elif "a map" in expected.text and value is True and takes_maximum(problem):
        hint = f"write its keys: `{problem.path[-1]}: {{max: …}}`"
    elif isinstance(node, ScalarNode) and not node.text and isinstance(problem.path[-1], str):
        hint = f"`{problem.path[-1]}` is empty: write its value, or omit the key"
    elif expected.text == "a list" and isinstance(value, dict):
        hint = items_hint(problem) or problem.schema.get("x-hint")
    elif expected.text == "a list" and "x-hint" in problem.schema:
        hint = problem.schema["x-hint"]
    elif (
        isinstance(value, str)
        and "a list" in expected.text
        and 0 < len(value.strip()) <= MAX_SHOWN_CHARS
    ):
        source = node.source.text[node.start : node.end] if node is not None else value
        hint, written = explain_list(value, source, problem.path[-1]), list_source(node)
    elif isinstance(value, bool) and problem.path[-1] in _CONDITIONS:
        hint = constant_hint(str(problem.path[-1]), value)
    elif (
        expected.is_text and isinstance(node, ScalarNode) and 0 < len(node.text) <= MAX_SHOWN_CHARS
    ):
        hint = f'if it is text, quote it: `"{node.text}"`'
    found = "nothing" if value is None else quote_value(value)
    return Message("schema/type", f"expected {expected.text}, found {found}", hint, written)


class _Expected(NamedTuple):
    text: str
    values: tuple[str, ...] = ()
    scalar: str = ""
    is_text: bool = False


def _expected(keyword: str, expected: Any, around: schema.Subschema | Any) -> _Expected:
    if keyword in ("anyOf", "oneOf"):
        branches = [_expected_of_branch(branch) for branch in expected]
        values = tuple(value for branch in branches for value in branch.values)
        is_text = any(branch.is_text for branch in branches)
        return _Expected(_join_or(branch.text for branch in branches), values, "", is_text)
    if keyword in ("enum", "const"):
        values = tuple(str(value) for value in (expected if keyword == "enum" else [expected]))
        listed = ", ".join(f"`{value}`" for value in values)
        reads = "number" if schema.json_type(expected) == "number" else ""
        return _Expected(f"one of {listed}" if len(values) > 1 else listed, values, reads)
    scalar = around.get("x-scalar", "")
    kinds = (expected,) if isinstance(expected, str) else tuple(expected)
    reads = scalar if scalar in _NUMERIC else "boolean" if kinds == ("boolean",) else ""
    reads = "number" if set(kinds) <= {"integer", "number"} else reads
    text = (
        _SCALAR_LABELS[scalar]
        if scalar in _SCALAR_LABELS
        else _join_or(_TYPE_LABELS[kind] for kind in kinds)
    )
    return _Expected(text, (), reads, "string" in kinds and not reads)


def _join_or(texts: Iterable[str]) -> str:
    *others, last = texts
    return f"{', '.join(others)} or {last}" if others else last


def _expected_of_branch(branch: schema.Subschema) -> _Expected:
    shape = schema.resolve_ref(branch)
    for keyword in ("const", "enum", "type", "anyOf"):
        if keyword in shape:
            return _expected(keyword, shape[keyword], shape)
    return _Expected("something else")


def _describe_yaml_trap(reads: str, node: Node | None) -> Message | None:
    """Return the message for text that YAML 1.1 reads as the expected boolean or number."""
    if not isinstance(node, ScalarNode) or not isinstance(node.value, str):
        return None
    if reads in _NUMERIC and node.style and _NUMBER.fullmatch(node.text):
        written = f"{node.text}s" if reads == "duration" else node.text
        message = f"`{node.style}{node.text}{node.style}` is text because it is quoted"
        certain = None if reads == "duration" else written  # a duration's unit is a guess
        return Message("scalar/quoted-number", message, f"write `{written}`", certain)
    trap = None if node.style else yaml_scalars.yaml11_reading(node.text)
    if trap and trap.kind == "boolean" and reads == "boolean":
        message = f"`{node.text}` is text in YAML 1.2, not a boolean"
        return Message(
            "yaml/boolean-trap", message, f"write `{trap.replacement}`", trap.replacement
        )
    if trap and trap.kind == "number" and reads in _NUMERIC:
        message = f"`{node.text}` is text in YAML 1.2, not a number"
        unit = "s" if reads == "duration" else ""
        return Message("yaml/number-trap", message, f"write `{trap.replacement}{unit}`")
    return None
