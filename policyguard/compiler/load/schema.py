"""The schema of the policy language, and which part of it holds for a value.

Besides checking, the schema says four things of a place: its `default`, how its text is read
(`x-scalar`), with which step of the language it comes to life (`x-step`), and whether it is
`deprecated`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import cache
from typing import Any

from policyguard.engines.json_schema import Schema

Subschema = dict[str, Any]
"""A schema object, or several that hold for the same value laid over one another."""


@cache
def document() -> Subschema:
    """The schema as it is published."""
    from importlib import resources  # 10 ms, which a policy that is known need not pay

    text = resources.files("policyguard.schemas").joinpath("policy.schema.json").read_text("utf-8")
    read: Subschema = json.loads(text)
    return read


@cache
def validator() -> Schema:
    """The schema, ready to be applied."""
    return Schema(document())


def resolve_for(schema: Subschema, value: object) -> Subschema:
    """What `schema` says of `value`: references followed, the branch for its kind chosen.

    Where several parts speak, the outermost wins.
    """
    merged: Subschema = {}
    for part in _applicable_schemas(schema, value):
        for keyword, said in part.items():
            if keyword == "properties":
                merged[keyword] = {**said, **merged.get(keyword, {})}
            else:
                merged.setdefault(keyword, said)
    return merged


def child_schema(shape: Subschema, key: str | int) -> Subschema:
    """The schema of the value under a key, or at a place in a list; empty where it says nothing."""
    if isinstance(key, int):
        first = shape.get("prefixItems", ())
        found = first[key] if key < len(first) else shape.get("items", {})
    else:
        found = shape.get("properties", {}).get(key, shape.get("additionalProperties", {}))
    return found if isinstance(found, dict) else {}


def resolve_ref(schema: Subschema) -> Subschema:
    """`schema` with what it refers to laid under it."""
    if "$ref" not in schema:
        return schema
    return {**resolve_ref(_get_definition(schema["$ref"])), **schema}


def find_sections_with(key: str, shape: Subschema) -> list[str]:
    """The sections inside of `shape`, dotted, that know a key: the nearest, at most two deep."""
    level = {"": shape}
    for _ in range(2):
        level = {
            f"{path}.{name}".lstrip("."): below
            for path, around in level.items()
            for name, below in _properties(around).items()
        }
        found = [path for path, around in level.items() if key in _properties(around)]
        if found:
            return found
    return []


def _properties(shape: Subschema) -> dict[str, Subschema]:
    """The keys of what `shape` holds for, in all its branches."""
    shape = resolve_ref(shape)
    known: dict[str, Subschema] = dict(shape.get("properties", {}))
    for branch in shape.get("anyOf", ()):
        known |= _properties(branch)
    return known


def _applicable_schemas(schema: Subschema, value: object) -> Iterator[Subschema]:
    yield schema
    if "$ref" in schema:
        yield from _applicable_schemas(_get_definition(schema["$ref"]), value)
    for branch in schema.get("anyOf", ()):
        if _accepts(branch, value):
            yield from _applicable_schemas(branch, value)
            break
    if "if" in schema:
        needed = schema["if"]["required"]
        holds = isinstance(value, dict) and all(key in value for key in needed)
        yield from _applicable_schemas(schema["then" if holds else "else"], value)


def _get_definition(reference: str) -> Subschema:
    """What a reference of the policy's schema leads to; nothing for one of another schema."""
    found: Subschema = document()["$defs"].get(reference.removeprefix("#/$defs/"), {})
    return found


def _accepts(branch: Subschema, value: object) -> bool:
    """Whether `branch` is for values of this kind. One that only names keys is for none."""
    branch = resolve_ref(branch)
    if "anyOf" in branch and "type" not in branch:
        return any(_accepts(inner, value) for inner in branch["anyOf"])
    if "const" in branch:
        return bool(branch["const"] == value)
    if "enum" in branch:
        return value in branch["enum"]
    given = branch.get("type", ())
    kinds = (given,) if isinstance(given, str) else given
    if json_type(value) in kinds:
        return True
    whole = isinstance(value, int | float) and not isinstance(value, bool) and value == value // 1
    return whole and "integer" in kinds


def json_type(value: object) -> str:
    """JSON Schema's word for the type of `value`; `number` also where it is a whole one."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, int | float):
        return "number"
    if isinstance(value, str):
        return "string"
    return "array" if isinstance(value, list) else "object"
