"""One event is one JSON line, and the published schema describes each line that is written."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, get_args

import jsonschema
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from policyguard.journal.chain import CHAIN_FIELDS, Chain, Hasher
from policyguard.journal.format import LineError, decode, encode
from policyguard.model.constraint import Observation
from policyguard.model.event import Admitted, Completed, Event, Refused, SessionStarted

SCHEMA = json.loads(
    (Path(__file__).parents[2] / "schemas" / "event.schema.json").read_text(encoding="utf-8")
)
KINDS: dict[str, type[msgspec.Struct]] = {
    str(kind.__struct_config__.tag): kind for kind in get_args(Event)
}

names = st.text(max_size=8)
values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(names, inner, max_size=3),
    max_leaves=8,
)
numbers = st.floats(allow_nan=False, allow_infinity=False)
by_type: dict[Any, st.SearchStrategy[Any]] = {
    int: st.integers(-(2**63), 2**63 - 1),
    float: numbers,
    dict[str, Any]: st.dictionaries(names, values, max_size=3),
    dict[str, float]: st.dictionaries(names, numbers, max_size=3),
    tuple[float, ...]: st.lists(numbers, max_size=3).map(tuple),
}
by_type[tuple[Observation, ...]] = st.lists(
    st.builds(
        Observation, point=by_type[dict[str, Any]], seq=by_type[int], last_change=by_type[int]
    ),
    max_size=2,
).map(tuple)


@st.composite
def events(draw: st.DrawFn) -> Event:
    kind = draw(st.sampled_from(sorted(KINDS)))
    hints = {field.name: field.type for field in msgspec.structs.fields(KINDS[kind])}
    return KINDS[kind](**{name: draw(_of(hint)) for name, hint in hints.items()})


def _of(hint: Any) -> st.SearchStrategy[Any]:
    parts = [by_type.get(part, st.from_type(part)) for part in get_args(hint)]
    if type(None) in get_args(hint):
        return st.one_of(parts)
    return by_type.get(hint, st.from_type(hint))


def _properties(kind: str) -> dict[str, dict[str, Any]]:
    own = SCHEMA["$defs"][kind]["properties"]
    return {
        name: SCHEMA["$defs"][value["$ref"].rsplit("/", 1)[1]] if "$ref" in value else value
        for name, value in own.items()
    }


_LEFT_OUT = ("description", "title", "propertyNames")


def _shape(schema: dict[str, Any]) -> dict[str, Any]:
    """Return a schema without its descriptions, and the names that msgspec 0.23 gives of keys."""
    if "anyOf" in schema:
        types = [part["type"] for part in schema["anyOf"]]
        return {"type": types, **{k: v for k, v in schema.items() if k == "default"}}
    if "const" in schema:
        return {"enum": [schema["const"]]}
    reduced = {k: v for k, v in schema.items() if k not in _LEFT_OUT}
    for key in ("items", "additionalProperties"):
        if isinstance(reduced.get(key), dict):
            reduced[key] = _shape(reduced[key])
    if "properties" in reduced:
        reduced["properties"] = {name: _shape(one) for name, one in reduced["properties"].items()}
    if "prefixItems" in reduced:
        reduced["prefixItems"] = [_shape(item) for item in reduced["prefixItems"]]
    return reduced


def test_the_schema_has_each_type_of_event_and_no_other() -> None:
    jsonschema.Draft202012Validator.check_schema(SCHEMA)
    assert [ref["$ref"] for ref in SCHEMA["oneOf"]] == [f"#/$defs/{kind}" for kind in KINDS]


@pytest.mark.parametrize("kind", KINDS)
def test_the_schema_has_the_fields_of_the_model_with_their_types_and_defaults(kind: str) -> None:
    _, components = json.loads(msgspec.json.encode(msgspec.json.schema_components([KINDS[kind]])))
    generated = components[KINDS[kind].__name__]["properties"]
    expected = {name: _shape(schema) for name, schema in generated.items()}
    structs = dict.fromkeys(("charges", "insisted", "asks", "raised"), "Charge") | {
        "lessons": "Observation",
        "marks": "MarkChange",
        "cleared": "MarkChange",
        "taken": "MarkChange",
    }
    for name, struct in structs.items():
        if name in expected:
            expected[name]["items"] = _shape(components[struct])
    described = {name: _shape(schema) for name, schema in _properties(kind).items()}
    assert [name for name in described if name in CHAIN_FIELDS] == list(CHAIN_FIELDS)
    assert {
        name: shape for name, shape in described.items() if name not in CHAIN_FIELDS
    } == expected
    assert expected.keys().isdisjoint(CHAIN_FIELDS)


@pytest.mark.parametrize("kind", KINDS)
def test_each_key_of_the_schema_has_a_description(kind: str) -> None:
    for name, schema in _properties(kind).items():
        assert schema["description"].endswith((".", "CEL.")), name


@given(events())
def test_what_is_written_is_read_back_and_validates(event: Event) -> None:
    line = encode(event)
    assert b"\n" not in line
    assert decode(line) == event
    jsonschema.Draft202012Validator(SCHEMA).validate(json.loads(line))


@given(events(), st.booleans(), st.sampled_from([0, 3]), st.none() | st.binary())
def test_a_line_of_a_journal_is_read_as_its_event_and_validates(
    event: Event, masked: bool, seq: int, key: bytes | None
) -> None:
    line = Chain(Hasher(key), "0" * 32, seq, "f" * 64).seal(encode(event)[:-1].decode(), masked)
    assert line.endswith(b"\n")
    assert line.count(b"\n") == 1
    known = event
    if masked and isinstance(event, (Admitted, Refused)):
        known = msgspec.structs.replace(event, args=None)
    assert decode(line[:-1]) == known
    assert decode(json.dumps(json.loads(line))) == known  # as another program would format it
    jsonschema.Draft202012Validator(SCHEMA).validate(json.loads(line))


@pytest.mark.parametrize(
    ("added", "reason"),
    [
        ({"seq": "0", "hash": "0"}, "at `$.seq`"),
        ({"seq": 0, "hash": "0", "sec": 1}, "unknown field `sec`"),
        ({"hash": "0"}, "unknown field `hash`"),
    ],
)
def test_other_fields_are_refused(added: dict[str, Any], reason: str) -> None:
    with pytest.raises(LineError) as error:
        decode(json.dumps({"event": "closed", "session": "s", **added}))
    assert reason in str(error.value)


def test_the_fields_of_a_chain_inside_arguments_are_arguments() -> None:
    args = {"a": 1, "seq": 0, "prev": "0" * 64, "hash": "0" * 64}
    event = Admitted("s", call="c", args=args)
    assert decode(encode(event)) == event


def test_the_examples_of_the_schema_are_events() -> None:
    for example in SCHEMA["examples"]:
        decode(json.dumps(example))
        jsonschema.Draft202012Validator(SCHEMA).validate(example)


def test_defaults_are_left_out_of_the_line() -> None:
    assert encode(SessionStarted("s")) == b'{"event":"started","session":"s"}'
    assert json.loads(encode(Admitted("s", call="c0", class_="shell"))) == {
        "event": "admitted",
        "session": "s",
        "call": "c0",
        "class": "shell",
    }


def test_a_result_in_the_line_is_explicit() -> None:
    event = decode('{"event":"completed","session":"s","call":"c0","ok":false}')
    assert event == Completed("s", call="c0", ok=False, provenance="explicit")


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b'{"event":"admitted","session":"s","tol":"bash"}', "unknown field `tol`"),
        (b'{"event":"admited","session":"s"}', "invalid value 'admited' - at `$.event`"),
        (b'{"session":"s"}', "missing required field `event`"),
        (b'{"event":"closed"}', "missing required field `session`"),
        (b'{"event":"admitted","session":"s","args":[1]}', "at `$.args`"),
        (b'{"event":"admitted","session":"s","at":"now"}', "at `$.at`"),
        (b"[1]", "expected `object`, got `array`; see schemas/event.schema.json"),
        (b'{"event":"closed","ses', "one event is one line of JSON"),
        (b"", "one event is one line of JSON"),
        (b'{"event":"closed","session":"\xff"}', "write the file as UTF-8"),
        (
            b'{"event":"admitted","session":"s","args":' + b'{"a":' * 300 + b"1" + b"}" * 301,
            "nested more than 200 levels deep",
        ),
        (
            b'{"event":"admitted","session":"s","args":' + b'{"a":' * 9000 + b"1" + b"}" * 9001,
            "nested more than 200 levels deep",
        ),
    ],
)
def test_a_line_that_is_not_an_event_is_refused_with_its_position(line: bytes, reason: str) -> None:
    with pytest.raises(LineError) as error:
        decode(line)
    assert reason in str(error.value)


def test_brackets_inside_text_do_not_nest() -> None:
    text = '[{\\"' * 400
    line = f'{{"event":"completed","session":"s","text":"{text}"}}'
    event = decode(line)
    assert isinstance(event, Completed)
    assert event.text.count("{") == 400
