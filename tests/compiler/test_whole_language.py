"""The model can hold everything the schema allows, of any step of the language."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from policyguard.compiler.load import language_version, schema
from policyguard.model.policy import Policy
from tests.compiler.setup import read_text
from tests.examples import examples

SCALARS = {
    "duration": ["60s", "100ms", "30d"],
    "count": [1, 3, "5k", 2.0],
    "number": [0, 2.5, "2M"],
    "amount": [3, "5m", "1k"],
    "cel": ["call.tool == 'x'"],
    "regex": ["(?i)abc"],
    "message": ["no {call.tool}"],
    "name": ["x", "y*"],
    "glob": ["x", "y_*"],
    "time": ["2026-03-06T10:00:00Z"],
    "date": ["2099-12-31"],
}


@st.composite
def instances(draw: Any, around: schema.Subschema, depth: int = 0) -> Any:
    """Draw a value that `around` allows."""
    shape = schema.resolve_ref(around)
    if "const" in shape:
        return shape["const"]
    if "enum" in shape:
        return draw(st.sampled_from(shape["enum"]))
    if "anyOf" in shape and "properties" not in shape:
        return draw(instances(draw(st.sampled_from(shape["anyOf"])), depth))
    if shape.get("x-scalar") in SCALARS:
        values = SCALARS[shape["x-scalar"]]
        return draw(st.sampled_from([value for value in values if within(value, shape)]))
    kinds = shape.get("type", "object")
    kind = kinds if isinstance(kinds, str) else draw(st.sampled_from(kinds))
    if kind == "object":
        return draw(objects(shape, depth))
    if kind == "array":
        return draw(arrays(shape, depth))
    if kind == "string":
        pattern = shape.get("pattern", "")
        texts = ("x1", "5m", "https://x.example", "-x")
        return next(text for text in texts if re.search(pattern, text))
    return {"boolean": True, "number": 2.5}[kind]


def within(value: Any, shape: schema.Subschema) -> bool:
    if isinstance(value, str):
        return "maximum" not in shape
    return shape.get("minimum", value) <= value <= shape.get("maximum", value)


@st.composite
def arrays(draw: Any, shape: schema.Subschema, depth: int) -> list[Any]:
    count = draw(st.integers(max(shape.get("minItems", 0), 0), 2))
    return [draw(instances(schema.child_schema(shape, index), depth + 1)) for index in range(count)]


@st.composite
def objects(draw: Any, shape: schema.Subschema, depth: int) -> dict[str, Any]:
    if shape.get("x-scalar") == "example":
        call = {"x": draw(st.sampled_from([{}, {"a": 1}, "ls"]))}
        return draw(st.sampled_from([call, {"call": call, "user": "u", "roles": ["r"]}]))
    properties = shape.get("properties", {})
    keys = set(shape.get("required", ()))
    for choice in ("oneOf", "anyOf"):
        if choice in shape:
            keys |= set(draw(st.sampled_from(shape[choice]))["required"])
    only = {branch["required"][0] for branch in shape.get("oneOf", ())} - keys
    optional = sorted(properties.keys() - keys - only - {"max", "within", "key", "schemas"})
    if optional:
        min_size = shape.get("minProperties", 0)
        keys |= set(draw(st.lists(st.sampled_from(optional), min_size=min_size, max_size=4)))
    keys |= {"max"} if "sum" in keys else set()
    found = {key: draw(instances(properties[key], depth + 1)) for key in sorted(keys)}
    if isinstance(shape.get("additionalProperties"), dict):
        names = draw(st.lists(st.sampled_from(["a", "b_1"]), unique=True, min_size=1))
        below = shape["additionalProperties"]
        found |= {name: draw(instances(below, depth + 1)) for name in names}
    return found


@pytest.fixture(scope="module", autouse=True)
def every_step():
    """Support the whole language."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(language_version, "SUPPORTED_STEP", 4)
        yield


@settings(max_examples=examples(300), deadline=None)
@given(instances(schema.document()))
def test_every_valid_tree_becomes_a_policy(tree):
    tree = {**tree, "extends": [], "disable": {}}
    result = read_text(json.dumps(tree))
    # What an effect of a result rule needs, and what `cases` exclude, is checked beside the schema.
    known = ("schema/deprecated", "schema/missing-key", "schema/conflict")
    found = [one for one in result.diagnostics if one.code not in known]
    phases = {one.code.partition("/")[0] for one in found}
    # Only unknown names, files that do not exist, and invalid patterns remain.
    assert phases <= {"reference", "scalar", "regex", "pins", "load"}, (tree, result.diagnostics)
    assert isinstance(result.policy, Policy)
    assert result.policy.name == tree["name"]
