"""The schema of the policy language, and the part of it that applies to a value.

Beyond validation, the schema gives each value a `default`, its scalar format (`x-scalar`) and the
language step that introduces it (`x-step`); it marks keys as `deprecated`, with their new name
(`x-renamed`) if they have one.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import cache
from typing import Any

from policyguard.engines.json_schema import Schema

Subschema = dict[str, Any]
"""A schema object, or several that apply to the same value, merged."""


@cache
def document() -> Subschema:
    """Return the published schema."""
    from importlib import resources  # takes 10 ms, not needed for cached policies

    text = resources.files("policyguard.schemas").joinpath("policy.schema.json").read_text("utf-8")
    read: Subschema = json.loads(text)
    return read


@cache
def validator() -> Schema:
    """Return the validator for the schema."""
    return Schema(document())


_resolved: dict[tuple[int, object], Subschema] = {}
"""What applies to a value, by the id() of a part of the schema and the value's class."""
_merged: dict[int, Subschema] = {}
"""Parts of the schema merged over what they refer to, by their id()."""


def resolve_for(schema: Subschema, value: object) -> Subschema:
    """Return the part of `schema` that applies to `value`, with references and branches resolved.

    The values in a mapping or list do not matter. If several parts define a keyword, the outermost
    wins. The caller must not change the result.
    """
    kind: object = value.__class__
    if isinstance(value, float):
        kind = kind, value == value // 1
    key = id(schema), kind
    found = _resolved.get(key)
    if found is None:
        found = _resolve(schema, value)
        if _parts().get(key[0]):
            _resolved[key] = found
    return found


def _resolve(schema: Subschema, value: object) -> Subschema:
    merged: Subschema = {}
    for part in _applicable_schemas(schema, value):
        for keyword, rule in part.items():
            if keyword == "properties":
                merged[keyword] = {**rule, **merged.get(keyword, {})}
            else:
                merged.setdefault(keyword, rule)
    return merged


def child_schema(shape: Subschema, key: str | int) -> Subschema:
    """Return the schema of the value at a key or list index; empty if there is none."""
    if isinstance(key, int):
        first = shape.get("prefixItems", ())
        found = first[key] if key < len(first) else shape.get("items", {})
    else:
        found = shape.get("properties", {}).get(key, shape.get("additionalProperties", {}))
    return found if isinstance(found, dict) else {}


def resolve_ref(schema: Subschema) -> Subschema:
    """Return `schema` merged over its referenced definition; the caller must not change it."""
    if "$ref" not in schema:
        return schema
    found = _merged.get(id(schema))
    if found is None:
        found = _merge_ref(schema)
        if id(schema) in _parts():
            _merged[id(schema)] = found
    return found


def _merge_ref(schema: Subschema) -> Subschema:
    if "$ref" not in schema:
        return schema
    return {**_merge_ref(_get_definition(schema["$ref"])), **schema}


def find_sections_with(key: str, shape: Subschema) -> list[str]:
    """Return the dotted paths of the nearest sections in `shape` with a key, at most two deep."""
    level = {"": shape}
    for _ in range(2):
        level = {
            f"{path}.{name}".lstrip("."): child
            for path, parent in level.items()
            for name, child in _properties(parent).items()
        }
        found = [path for path, parent in level.items() if key in _properties(parent)]
        if found:
            return found
    return []


def find_keys(shape: Subschema) -> frozenset[str]:
    """Return the keys that a value of this shape may have, in any branch."""
    return frozenset(_properties(shape))


def _properties(shape: Subschema) -> dict[str, Subschema]:
    """Return the properties of `shape`, including all branches."""
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
    """Return the definition of a reference; empty for one of another schema."""
    found: Subschema = document()["$defs"].get(reference.removeprefix("#/$defs/"), {})
    return found


def _accepts(branch: Subschema, value: object) -> bool:
    """Return whether `branch` accepts the type of `value`; one that only names keys does not."""
    branch = resolve_ref(branch)
    if "anyOf" in branch and "type" not in branch:
        return any(_accepts(inner, value) for inner in branch["anyOf"])
    if "const" in branch:
        return bool(branch["const"] == value)
    if "enum" in branch:
        return value in branch["enum"]
    types = branch.get("type", ())
    kinds = (types,) if isinstance(types, str) else types
    if json_type(value) in kinds:
        return True
    whole = isinstance(value, int | float) and not isinstance(value, bool) and value == value // 1
    return whole and "integer" in kinds


@cache
def _parts() -> dict[int, bool]:
    """Return whether only the type of a value matters, by the id() of each part of the schema."""
    by_type: dict[int, bool] = {}
    nodes: list[object] = [document()]
    while nodes:
        node = nodes.pop()
        if isinstance(node, dict):
            nodes += node.values()
            by_type[id(node)] = not _reads_content(node, set())
        elif isinstance(node, list):
            nodes += node
    return by_type


def _reads_content(schema: Subschema, seen: set[str]) -> bool:
    """Return whether a value's content or keys may decide which parts of `schema` apply."""
    if "if" in schema:
        return True
    reference = schema.get("$ref", "")
    if reference and reference not in seen:
        seen.add(reference)
        if _reads_content(_get_definition(reference), seen):
            return True
    return any(
        not {"const", "enum"}.isdisjoint(_merge_ref(branch)) or _reads_content(branch, seen)
        for branch in schema.get("anyOf", ())
    )


def json_type(value: object) -> str:
    """Return the JSON Schema type of `value`; integers are `number`."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, int | float):
        return "number"
    if isinstance(value, str):
        return "string"
    return "array" if isinstance(value, list) else "object"
