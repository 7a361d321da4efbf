"""The published schema is complete, consistent, and agrees with the model."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

import jsonschema
import msgspec
import pytest

from policyguard.compiler.load import language_version, schema
from policyguard.model import entry, limits, marks, policy, shell
from policyguard.model.effect import Effect

DOCUMENT = schema.document()
DOCS = Path(__file__).parents[2] / "docs"


def objects(found: Any, path: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield every subschema with its path."""
    if isinstance(found, dict):
        yield path, found
        for key, below in found.items():
            if key in ("properties", "patternProperties", "$defs"):
                for name, one in below.items():
                    yield from objects(one, f"{path}/{name}")
            elif key in ("items", "additionalProperties", "propertyNames", "if", "then", "else"):
                yield from objects(below, f"{path}/{key}")
            elif key in ("anyOf", "oneOf", "allOf", "prefixItems"):
                for index, one in enumerate(below):
                    yield from objects(one, f"{path}/{key}/{index}")


def test_schema_is_valid():
    jsonschema.Draft202012Validator.check_schema(DOCUMENT)


def test_every_key_has_a_description_for_editors():
    for path, found in objects(DOCUMENT):
        for name, below in found.get("properties", {}).items():
            # Editors do not follow references in completions.
            described = below.get("description", "")
            assert re.match(r"[`A-Z].*[.?]$", described), f"{path}/{name}: {described!r}"


def test_every_object_rejects_unknown_keys():
    for path, found in objects(DOCUMENT):
        if "properties" in found:
            assert found.get("additionalProperties") is False, path


def test_defaults_and_examples_are_valid():
    seen = 0
    for path, found in objects(DOCUMENT):
        check = jsonschema.Draft202012Validator({**found, "$defs": DOCUMENT["$defs"]})
        for value in [
            *found.get("examples", ()),
            *([found["default"]] if "default" in found else []),
        ]:
            assert list(check.iter_errors(value)) == [], (path, value)
            seen += 1
    assert seen > 50


def test_steps_are_those_of_the_language():
    steps = {found["x-step"] for _, found in objects(DOCUMENT) if "x-step" in found}
    assert steps == {2, 3, "lint"}
    assert language_version.SUPPORTED_STEP == 3


def test_references_and_definitions_match():
    used = {
        found["$ref"].removeprefix("#/$defs/") for _, found in objects(DOCUMENT) if "$ref" in found
    }
    assert used == set(DOCUMENT["$defs"])


def test_patterns_are_anchored_and_simple():
    for path, found in objects(DOCUMENT):
        pattern = found.get("pattern")
        if isinstance(pattern, str) and pattern != r"\S":
            assert pattern.startswith("^"), path
            assert pattern.endswith("$"), path
            assert not re.search(r"\(\?[!=<]", pattern), path


# The schema's objects and their structs.
STRUCTS = [
    ("rule", policy.Rule, {"id"}),
    ("result_rule", policy.ResultRule, {"id", "commands", "paths", "hosts"}),
    ("budget", limits.Budget, {"id"}),
    ("mark", policy.Mark, {"id"}),
    ("mark_set", marks.MarkEvent, {"key"}),
    ("mark_clear", marks.MarkEvent, set()),
    ("exception", policy.Exemption, {"id"}),
    ("repeat", limits.RepeatLimit, set()),
    ("cycle", limits.CycleLimit, set()),
    ("no_progress", limits.NoProgressLimit, set()),
    ("failures", limits.FailuresLimit, set()),
    ("refusals", limits.RefusalsLimit, set()),
    ("outage", limits.OutageLimit, set()),
    ("polling", limits.PollingLimit, set()),
    ("level", limits.LimitLevel, set()),
    ("class", policy.ClassEntry, set()),
    ("signature", policy.Signature, set()),
    ("blame_rule", policy.BlameRule, set()),
    ("approval", policy.Approval, set()),
    ("learn", policy.Learn, set()),
    ("radius_when", policy.Radius, set()),
    ("text_examples", entry.TextExamples, set()),
    ("pattern/anyOf/1", policy.Pattern, set()),
    ("tag/anyOf/1", policy.Tag, set()),
    ("/classify", policy.Classify, set()),
    ("/classify/shell", shell.Shell, set()),
    ("/classify/shell/bounds", shell.ShellBounds, set()),
    ("shell_program", shell.Program, set()),
    ("shell_wrapper", shell.Wrapper, set()),
    ("shell_code", shell.CodeRunner, set()),
    ("/classify/fingerprint", policy.Fingerprint, set()),
    ("/outcomes", policy.Outcomes, set()),
    ("/outcomes/meta", policy.ResultMeta, set()),
    ("/outcomes/envelope/items", policy.Envelope, set()),
    ("/progress", policy.Progress, set()),
    ("/journal", policy.Journal, set()),
    ("/bounds", policy.Bounds, set()),
    ("", policy.Policy, {"digest"}),
]
SCHEMAS = dict(objects(DOCUMENT))


@pytest.mark.parametrize(("path", "struct", "own"), STRUCTS, ids=[path for path, *_ in STRUCTS])
def test_model_has_the_keys_of_the_schema(path, struct, own):
    found = SCHEMAS[path if path.startswith("/") or not path else f"/{path}"]
    renamed = {name for name, below in found["properties"].items() if "x-renamed" in below}
    known = set(found["properties"]) - {"policyguard", "extends", "disable", "replace"} - renamed
    fields = {field.encode_name: field for field in msgspec.structs.fields(struct)}
    assert set(fields) - own == known
    for name, field in fields.items():
        if name in own:
            continue
        shape = schema.resolve_ref(found["properties"][name])
        # An optional key is optional in the model or has a default in the schema.
        required = field.default is msgspec.NODEFAULT and field.default_factory is msgspec.NODEFAULT
        given = name in found.get("required", ()) or "default" in shape
        if name not in ("on_error", "per") or struct is not policy.Rule:
            assert not required or given, name
        allowed = literals(field.type)
        if "enum" in shape and allowed:
            # Rules never allow, and errors never halt.
            never = {"effect": {"allow"}, "on_error": {"halt"}}.get(name, set())
            assert set(shape["enum"]) == allowed - never, name


def literals(kind: Any) -> set[str]:
    """Return the literals or effects in a field's type."""
    if kind is Effect:
        return set(Effect)
    if get_origin(kind) is Literal:
        return set(get_args(kind))
    return {value for part in get_args(kind) if part is not type(None) for value in literals(part)}


@pytest.mark.parametrize("part", ["shell_program", "shell_wrapper", "shell_code", ""])
def test_the_page_on_commands_explains_each_key(part: str) -> None:
    shell = DOCUMENT["properties"]["classify"]["properties"]["shell"]
    keys = (DOCUMENT["$defs"][part] if part else shell)["properties"]
    lines = (DOCS / "shell.md").read_text("utf-8").splitlines()
    for key, described in keys.items():
        text = described.get("description", "").replace("|", "\\|")
        row = f"| `{key}` | {text[:1].upper()}{text[1:]} |"
        is_own_part = not part and key in ("programs", "wrappers", "code", "bounds", "replace")
        assert is_own_part or row in lines
