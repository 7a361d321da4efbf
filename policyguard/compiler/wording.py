"""How a value that the schema refuses is put into words."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from typing import Any, NamedTuple

from policyguard.compiler import scalars, schema
from policyguard.engines import yaml_core
from policyguard.engines.json_schema import Problem
from policyguard.engines.yaml_tree import Node, Scalar
from policyguard.model import diagnostic
from policyguard.model.diagnostic import did_you_mean


class Words(NamedTuple):
    """Code, message and help of a diagnostic.

    `written` takes the place of the value, in YAML, where it is certain that this is meant.
    """

    code: str
    message: str
    hint: str | None = None
    written: str | None = None


_KINDS = {
    "array": "a list",
    "boolean": "`true` or `false`",
    "integer": "a whole number",
    "null": "nothing",
    "number": "a number",
    "object": "a map",
    "string": "text",
}
_SCALARS = {
    "cel": "a CEL expression",
    "duration": "a duration",
    "count": "a whole number",
    "number": "a number",
    "regex": "a regular expression",
    "glob": "a glob",
    "time": "a time",
    "date": "a date",
}
_NUMBER = re.compile(r"[-+]?[0-9]+(?:\.[0-9]+)?")
_NUMERIC = ("count", "number", "duration")
_SPACE = re.compile(r"\s")
_GLOB = r"^[^\s\[\]{}!]+$"
_FLOW = re.compile(r"[][{},]|: ")
_CONDITIONS = ("when", "unless")
_LONGEST = 60
_FEW = 3
_OTHER_WORDS = {
    "abort": "halt",
    "approve": "ask",
    "confirm": "ask",
    "deny": "block",
    "forbid": "block",
    "refuse": "block",
    "reject": "block",
    "stop": "halt",
    "warn": "advise",
}
"""What other tools call effects."""
_BESIDE_CALL = {"tags", "roles", "user", "agent", "session", "marks", "at"}


def words(problem: Problem, node: Node | None) -> Words:
    """Put `problem` into words. `node` is the value that it is about, where there is one."""
    match problem.keyword:
        case "additionalProperties":
            return _unknown_key(problem)
        case "propertyNames":
            return _name(problem)
        case "required":
            missing = next(key for key in problem.expected if key not in problem.value)
            return Words("schema/missing-key", f"{_owner(problem)} needs `{missing}`")
        case "dependentRequired":
            return _dependent(problem)
        case "not":
            first, second = problem.expected["required"]
            return Words("schema/conflict", f"`{first}` and `{second}` exclude each other")
        case "anyOf" | "oneOf" if all("required" in branch for branch in problem.expected):
            return _choice(problem)
        case "minItems" | "maxItems" if problem.expected > 1:
            bound = "at least" if problem.keyword == "minItems" else "at most"
            message = f"{_owner(problem)} takes {bound} {problem.expected} items"
            return Words("schema/value", f"{message}, not {len(problem.value)}")
        case "minItems" | "minLength" | "minProperties":
            return Words("schema/empty", f"{_owner(problem)} is empty")
        case "maxLength":
            return Words("schema/too-long", f"longer than {problem.expected:,} characters")
        case "maxProperties":
            return _too_many(problem)
        case "minimum":
            message = f"{quoted(problem.value)} is too small: at least {problem.expected}"
            return Words("schema/value", message)
        case "exclusiveMinimum":
            message = f"{quoted(problem.value)} is too small: more than {problem.expected}"
            return Words("schema/value", message, "leave the key out")
        case "maximum":
            message = f"{quoted(problem.value)} is too large: at most {problem.expected}"
            return Words("schema/value", message)
        case "pattern":
            return _pattern(problem, node)
        case "type" | "enum" | "const" | "anyOf" | "oneOf":
            return _misfit(problem, node)
        case _:
            return Words("schema/value", f"{quoted(problem.value)} cannot stand here")


def quoted(value: object) -> str:
    """A value of the author's in backticks; a list or map by its kind."""
    if isinstance(value, dict | list):
        return _KINDS[schema.kind(value)]
    if value is None or isinstance(value, bool):
        return f"`{json.dumps(value)}`"
    return diagnostic.quoted(str(value))


def _owner(problem: Problem) -> str:
    named = [step for step in problem.path if isinstance(step, str)]
    if not named:
        return str(problem.schema.get("x-name", "the policy"))
    item = isinstance(problem.path[-1], int)
    return f"an item of `{named[-1]}`" if item else f"`{named[-1]}`"


def _too_many(problem: Problem) -> Words:
    if problem.expected > 1:
        message = f"{_owner(problem)} has more than {problem.expected:,} entries"
        return Words("schema/too-long", message)
    around = problem.schema.get("x-name", "example")
    hint = "write each as an item of its own"
    if not problem.value.keys().isdisjoint(_BESIDE_CALL):
        hint = "beside other keys, the call itself stands under `call`"
    return Words("schema/conflict", f"several calls in one {around}", hint)


def _unknown_key(problem: Problem) -> Words:
    key = str(problem.path[-1])
    known = list(problem.schema.get("properties", ()))
    inside = schema.sections_with(key, dict(problem.schema))
    if 1 <= len(inside) <= _FEW:
        return Words(
            "schema/unknown-key",
            f"unknown key {quoted(key)} here",
            f"it stands under {_any(f'`{section}`' for section in inside)}",
        )
    hint = did_you_mean(key, known)
    if hint is None and len(known) <= 8:
        hint = "known here: " + ", ".join(f"`{name}`" for name in known)
    return Words("schema/unknown-key", f"unknown key {quoted(key)}", hint)


def _name(problem: Problem) -> Words:
    message = f"{quoted(problem.path[-1])} cannot be a name here"
    return Words("schema/name", message, _spaced(problem) or problem.schema.get("x-hint"))


def _spaced(problem: Problem) -> str | None:
    """Help on a glob that fails because of its white space."""
    text = str(problem.path[-1] if problem.keyword == "propertyNames" else problem.value)
    if problem.expected != _GLOB or len(text) > _LONGEST or not _SPACE.search(text):
        return None
    meant = _SPACE.sub("?", text.strip())
    more = "" if meant == text.strip() else ", where `?` is any one character"
    return f"no white space stands in it: write `{meant}`{more}"


def _dependent(problem: Problem) -> Words:
    given, needed = next(
        (key, other)
        for key, others in problem.expected.items()
        for other in others
        if key in problem.value and other not in problem.value
    )
    return Words("schema/missing-key", f"`{given}` needs `{needed}` beside it")


def _choice(problem: Problem) -> Words:
    keys = [key for branch in problem.expected for key in branch["required"]]
    given = [f"`{key}`" for key in keys if key in problem.value]
    names = ", ".join(f"`{key}`" for key in keys)
    if len(given) > 1:
        return Words(
            "schema/conflict",
            f"{_owner(problem)} has {' and '.join(given)}; exactly one of them is allowed",
        )
    amount = "one" if problem.keyword == "oneOf" else "at least one"
    return Words("schema/missing-key", f"{_owner(problem)} needs {amount} of {names}")


def _pattern(problem: Problem, node: Node | None) -> Words:
    scalar = problem.schema.get("x-scalar", "")
    found = _written_otherwise(scalar, node)
    if found:
        return found
    hint = _spaced(problem) or problem.schema.get("x-hint")
    if scalar == "duration" and scalars.duration(problem.value) == 0:
        message = f"{quoted(problem.value)} is too short: at least `1ms`"
        return Words("schema/value", message, "leave the key out; a limit is off with `none`")
    if scalar in _SCALARS:
        message = f"{quoted(problem.value)} is not {_SCALARS[scalar]}"
        return Words(f"scalar/{scalar}", message, hint)
    if problem.expected == r"\S":
        return Words("schema/empty", f"{_owner(problem)} needs a reason", hint)
    return Words("schema/value", f"{quoted(problem.value)} has not the form wanted here", hint)


def _misfit(problem: Problem, node: Node | None) -> Words:
    """A value of the wrong kind, or one that is none of those listed."""
    value = problem.value
    wanted = _wanted(problem.keyword, problem.expected, problem.schema)
    trapped = _written_otherwise(wanted.reads, node)
    if trapped:
        return trapped
    if wanted.values and isinstance(value, str):
        hint = _other_word(value, wanted.values) or did_you_mean(value, wanted.values)
        return Words("schema/value", f"{quoted(value)} is not {wanted.text}", hint)
    if wanted.reads == "duration" and schema.kind(value) == "number":
        message = f"{quoted(value)} is a number where a duration is meant"
        return Words("scalar/duration", message, f"write `{value}s`")
    hint = problem.schema.get("x-hint") if problem.keyword == "const" else None
    written = None
    if wanted.text == "a map":
        hint = _as_map(problem)
    elif wanted.text == "a list" and isinstance(value, dict):
        hint = _as_items(problem)
    elif isinstance(value, str) and "a list" in wanted.text and 0 < len(value.strip()) <= _LONGEST:
        hint, written = f"write `[{value}]`", _as_list(node)
    elif isinstance(value, bool) and problem.path[-1] in _CONDITIONS:
        hint = _constant(str(problem.path[-1]), value)
    elif wanted.is_text and isinstance(node, Scalar) and 0 < len(node.text) <= _LONGEST:
        hint = f'if it is text, quote it: `"{node.text}"`'
    found = "nothing" if value is None else quoted(value)
    return Words("schema/type", f"expected {wanted.text}, found {found}", hint, written)


def _other_word(value: str, known: Iterable[str]) -> str | None:
    """Help on a word that other tools have for an effect."""
    if "advise" not in known:
        return None
    if value == "allow":
        return "what nothing refuses is allowed: take the entry out, or exempt calls with `unless`"
    meant = _OTHER_WORDS.get(value.casefold())
    return f"did you mean `{meant}`?" if meant is not None else None


def _as_map(problem: Problem) -> str | None:
    """How what stands here is written as a map."""
    value, key = problem.value, problem.path[-1] if problem.path else ""
    if isinstance(value, list):
        if not isinstance(problem.schema.get("additionalProperties"), dict):
            return "write its keys without `-`: `key: value`"
        first = value[0] if value and isinstance(value[0], dict) else {}
        name = _short(first.get("id") or first.get("name") or next(iter(first), None))
        return f"each entry stands under its name, without `-`: `{name}: …`"
    if key in problem.schema.get("properties", {}):
        return f"`{key}` stands where a name is wanted: indent it further, as a key of its entry"
    if value is None:
        return f"nothing stands below `{key}`: indent its keys further than it"
    return None


def _as_items(problem: Problem) -> str | None:
    """How a map by name is written as a list of entries that say their name."""
    needed = schema.resolved(problem.schema.get("items", {})).get("required", ())
    if not needed or not problem.value:
        return None
    name = _short(next(iter(problem.value)))
    return f"the order counts here: write each entry as an item, `- {needed[0]}: {name}`"


def _short(name: object) -> str:
    """A name of the policy that help can show; else what stands for one."""
    return name if isinstance(name, str) and 0 < len(name) <= _LONGEST else "name"


def _as_list(node: Node | None) -> str | None:
    """A single item as a list, as it is written; None where that would read otherwise."""
    if not isinstance(node, Scalar) or node.style in ("|", ">"):
        return None
    text = node.source.text[node.start : node.end]
    return f"[{text}]" if node.style or not _FLOW.search(text) else None


def _constant(key: str, value: bool) -> str:
    """Help on a condition that does not ask anything."""
    if (key == "when") is not value:
        return "such an entry is about no call: take it out"
    then = "it is about every call" if value else "no call is exempt"
    return f'leave `{key}` out, then {then}; where something must stand, `"{str(value).lower()}"`'


class _Wanted(NamedTuple):
    text: str
    values: tuple[str, ...] = ()
    reads: str = ""
    is_text: bool = False


def _wanted(keyword: str, expected: Any, around: schema.Shape | Any) -> _Wanted:
    if keyword in ("anyOf", "oneOf"):
        branches = [_branch(branch) for branch in expected]
        values = tuple(value for branch in branches for value in branch.values)
        is_text = any(branch.is_text for branch in branches)
        return _Wanted(_any(branch.text for branch in branches), values, "", is_text)
    if keyword in ("enum", "const"):
        values = tuple(str(value) for value in (expected if keyword == "enum" else [expected]))
        listed = ", ".join(f"`{value}`" for value in values)
        reads = "number" if schema.kind(expected) == "number" else ""
        return _Wanted(f"one of {listed}" if len(values) > 1 else listed, values, reads)
    scalar = around.get("x-scalar", "")
    kinds = (expected,) if isinstance(expected, str) else tuple(expected)
    reads = scalar if scalar in _NUMERIC else "boolean" if kinds == ("boolean",) else ""
    text = _SCALARS[scalar] if scalar in _SCALARS else _any(_KINDS[kind] for kind in kinds)
    return _Wanted(text, (), reads, "string" in kinds and not reads)


def _any(texts: Iterable[str]) -> str:
    *most, last = texts
    return f"{', '.join(most)} or {last}" if most else last


def _branch(branch: schema.Shape) -> _Wanted:
    shape = schema.resolved(branch)
    for keyword in ("const", "enum", "type", "anyOf"):
        if keyword in shape:
            return _wanted(keyword, shape[keyword], shape)
    return _Wanted("something else")


def _written_otherwise(reads: str, node: Node | None) -> Words | None:
    """Text where a boolean or a number is wanted, and which YAML 1.1 would have read as one."""
    if not isinstance(node, Scalar) or not isinstance(node.value, str):
        return None
    if reads in _NUMERIC and node.style and _NUMBER.fullmatch(node.text):
        written = f"{node.text}s" if reads == "duration" else node.text
        message = f"`{node.style}{node.text}{node.style}` is text, because of its quotes"
        # A duration's unit is a guess.
        certain = None if reads == "duration" else written
        return Words("scalar/quoted-number", message, f"write `{written}`", certain)
    trap = None if node.style else yaml_core.trap(node.text)
    if trap and trap.kind == "boolean" and reads == "boolean":
        message = f"`{node.text}` is text in YAML 1.2, not a boolean"
        return Words("yaml/boolean-trap", message, f"write `{trap.instead}`", trap.instead)
    if trap and trap.kind == "number" and reads in _NUMERIC:
        message = f"`{node.text}` is text in YAML 1.2, not a number"
        return Words("yaml/number-trap", message, f"write `{trap.instead}`")
    return None
