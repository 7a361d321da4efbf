"""The published schema of test files is complete, and agrees with the code that reads them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import jsonschema
import msgspec
import pytest

from policyguard.testing import schema, suite
from tests.testing.suites import ROOT

DOCUMENT = schema.document()
PARTS = DOCUMENT["$defs"]


def objects(found: Any, path: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    """Every object of the schema that is a schema itself, with its place."""
    yield path, found
    for key in ("properties", "$defs"):
        for name, child in found.get(key, {}).items():
            yield from objects(child, f"{path}/{name}")
    for key in ("items", "additionalProperties"):
        if isinstance(found.get(key), dict):
            yield from objects(found[key], f"{path}/{key}")
    for key in ("anyOf", "prefixItems"):
        for index, child in enumerate(found.get(key, ())):
            yield from objects(child, f"{path}/{key}/{index}")


def test_it_is_a_schema() -> None:
    jsonschema.Draft202012Validator.check_schema(DOCUMENT)


def test_every_key_has_a_description_for_editors() -> None:
    seen = 0
    for path, found in objects(DOCUMENT):
        for name, child in found.get("properties", {}).items():
            target = PARTS[child["$ref"].rpartition("/")[2]] if "$ref" in child else child
            assert re.match(r"[`A-Z].*[.?]$", target.get("description", "")), f"{path}/{name}"
            seen += 1
    assert seen > 60


def test_every_object_refuses_what_it_does_not_know() -> None:
    for path, found in objects(DOCUMENT):
        if "properties" in found:
            assert found["additionalProperties"] is False, path


def test_examples_are_valid_where_they_stand() -> None:
    seen = 0
    for path, found in objects(DOCUMENT):
        check = jsonschema.Draft202012Validator({**found, "$defs": PARTS})
        for value in found.get("examples", ()):
            assert list(check.iter_errors(value)) == [], (path, value)
            seen += 1
    assert seen > 8


def test_no_branch_is_a_reference() -> None:
    # References within `anyOf` are put into words by the schema of policies, which has not ours.
    for path, found in objects(DOCUMENT):
        assert not any("$ref" in branch for branch in found.get("anyOf", ())), path


@pytest.mark.parametrize(
    ("part", "struct", "own"),
    [
        ("test", suite.Test, {"path"}),
        ("step", suite.Step, {"path"}),
        ("recorded_call", suite.ExpectedCall, {"path"}),
        ("session", suite.SessionSpec, {"parent"}),
        ("other_session", suite.SessionSpec, {"at"}),
    ],
)
def test_the_model_has_the_keys_of_the_schema(part: str, struct: Any, own: set[str]) -> None:
    # The structs have no unsupported keys: those must be errors, never ignored.
    unsupported = schema.unsupported_keys() if part == "step" else {}
    fields = {field.encode_name for field in msgspec.structs.fields(struct)}
    assert fields - own == set(PARTS[part]["properties"]) - set(unsupported)


def test_the_result_has_the_keys_of_the_schema() -> None:
    fields = {field.encode_name for field in msgspec.structs.fields(suite.ScriptedResult)}
    assert fields == set(PARTS["step"]["properties"]["result"]["properties"])


def test_unsupported_keys_name_the_step_that_adds_them() -> None:
    assert schema.unsupported_keys() == {}


def test_every_key_of_a_step_is_documented() -> None:
    text = (ROOT / "docs" / "policy-tests.md").read_text()
    keys = [*PARTS["step"]["properties"], *PARTS["step"]["properties"]["result"]["properties"]]
    assert [key for key in keys if not re.search(rf"`{key}\b", text)] == []
