"""The tools that `schemas` describes: every form of the file, and what it says of a policy.

`tests/cases/lint/tools_and_arguments_that_do_not_exist` pins the reports.
"""

from __future__ import annotations

import asyncio
import json
import os
import time
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from policyguard import Guard
from policyguard.cel.types.types import MapType, RecordType
from policyguard.compiler import check_policy
from policyguard.compiler.check.tool_types import argument_type
from policyguard.engines.json_source import parse
from policyguard.model.diagnostic import Diagnostic, PolicyError
from tests.examples import examples

ARGUMENTS = {
    "type": "object",
    "properties": {"order": {"type": "string"}, "amount": {"type": "number"}},
    "required": ["order"],
}
NAMED = {"name": "refund", "description": "gives money back"}
TOOL = {**NAMED, "inputSchema": ARGUMENTS}
FORMS: dict[str, Any] = {
    "mcp": {"tools": [TOOL]},
    "mcp, the last page": {"tools": [TOOL], "nextCursor": None},
    "json-rpc": {"jsonrpc": "2.0", "id": 7, "result": {"tools": [TOOL]}},
    "several servers": [{"tools": [TOOL]}, {"result": {"tools": [{"name": "other"}]}}],
    "chat completions": [{"type": "function", "function": {**NAMED, "parameters": ARGUMENTS}}],
    "chat completions, the request": {
        "model": "x",
        "messages": [],
        "tools": [{"type": "function", "function": {**NAMED, "parameters": ARGUMENTS}}],
    },
    "responses": [{"type": "function", **NAMED, "parameters": ARGUMENTS, "strict": True}],
    "responses, and tools of the provider": [
        {"type": "web_search"},
        {"type": "function", **NAMED, "parameters": ARGUMENTS},
    ],
    "anthropic": [{**NAMED, "input_schema": ARGUMENTS}],
}


def check(folder: Path, rules: str, tools: Any = None, head: str = "") -> list[Diagnostic]:
    """Return the diagnostics of a policy with these rules and tools."""
    if tools is not None:
        text = tools if isinstance(tools, str) else json.dumps(tools)
        (folder / "tools.json").write_text(text)
    head = head or "schemas: tools.json\n"
    file = folder / "policy.yaml"
    file.write_text(f"policyguard: 1\nname: x\n{head}{rules}")
    return check_policy(file, environ={})[1]


def rule(when: str, tools: str = "[refund]") -> str:
    return f"rules: {{a: {{tools: {tools}, when: {json.dumps(when)}}}}}\n"


def codes(found: list[Diagnostic]) -> list[str]:
    return [one.code for one in found]


@pytest.mark.parametrize("form", FORMS)
def test_every_form_types_the_arguments(form: str, tmp_path: Path) -> None:
    tools = FORMS[form]
    assert check(tmp_path, rule("call.args.order == 'x'"), tools) == []
    (wrong,) = check(tmp_path, rule("call.args.oder == 'x'"), tools)
    assert (wrong.code, wrong.help) == ("cel/unknown-field", "did you mean `order`?")
    (wrong,) = check(tmp_path, rule("call.args.order > 3"), tools)
    assert wrong.code == "cel/no-such-overload"
    (wrong,) = check(tmp_path, rule("true", "[refnd]"), tools)
    assert (wrong.code, wrong.help) == ("reference/unknown-tool", "did you mean `refund`?")


def test_real_mcp_server_schemas(tmp_path: Path) -> None:
    server_module = pytest.importorskip("mcp.server.mcpserver", reason="mcp is not installed")
    server = server_module.MCPServer("shop")

    @server.tool()
    def refund(order: str, amount: float, lines: list[str], note: str | None = None) -> str:
        """Gives money back."""
        return order + str(amount) + str(lines) + str(note)

    listed = asyncio.run(server.list_tools())
    tools = {"tools": [tool.model_dump(by_alias=True, exclude_none=True) for tool in listed]}
    assert check(tmp_path, rule("call.args.lines.exists(l, l == 'x')"), tools) == []
    assert codes(check(tmp_path, rule("call.args.note == 'x'"), tools)) == ["cel/maybe-absent"]
    condition = "has(call.args.note) && call.args.note != null"
    assert check(tmp_path, rule(condition), tools) == []
    assert codes(check(tmp_path, rule("call.args.nte == 'x'"), tools)) == ["cel/unknown-field"]
    assert codes(check(tmp_path, rule("call.args.amount == 'x'"), tools)) == ["cel/never-equal"]


def test_required_argument_can_be_tested_or_read(tmp_path: Path) -> None:
    """Nobody validates a model's arguments against the schema."""
    tools = {"tools": [TOOL]}
    assert check(tmp_path, rule("has(call.args.order) && call.args.order == 'x'"), tools) == []
    assert check(tmp_path, rule("call.args.order == 'x'"), tools) == []
    (found,) = check(tmp_path, rule("call.args.amount > 3"), tools)
    assert (found.code, found.severity) == ("cel/maybe-absent", "warning")
    assert check(tmp_path, rule("has(call.args.amount) && call.args.amount > 3"), tools) == []


@pytest.mark.parametrize(
    "tools",
    ["{outside: [refund]}", "[refund, anything]", '["*"]', '["@spawn"]', '[refund, "@finish"]'],
)
def test_arguments_of_any_tool_stay_open(tools: str, tmp_path: Path) -> None:
    known = {"tools": [TOOL, {"name": "anything", "inputSchema": {"type": "object"}}]}
    assert check(tmp_path, rule("call.args.whatever == 3", tools), known) == []


@pytest.mark.parametrize(
    "more",
    [
        {"additionalProperties": True},
        {"additionalProperties": {"type": "string"}},
        {"patternProperties": {"^x-": {}}},
        {"anyOf": [{"properties": {"other": {}}}]},
    ],
    ids=["any", "of a type", "by pattern", "in a branch"],
)
def test_additional_properties_stay_open(more: dict[str, Any], tmp_path: Path) -> None:
    tools = {"tools": [{**NAMED, "inputSchema": {**ARGUMENTS, **more}}]}
    assert check(tmp_path, rule("call.args.other == 'x'"), tools) == []
    closed = {"tools": [{**NAMED, "inputSchema": {**ARGUMENTS, "additionalProperties": False}}]}
    assert codes(check(tmp_path, rule("call.args.other == 'x'"), closed)) == ["cel/unknown-field"]


@pytest.mark.parametrize(
    ("more", "expected"),
    [
        ({"additionalProperties": True}, []),
        ({"additionalProperties": False}, ["cel/unknown-field"]),
    ],
)
def test_an_object_without_properties_is_open_unless_it_says_otherwise(
    more: dict[str, Any], expected: list[str], tmp_path: Path
) -> None:
    properties = {"extra": {"type": "object", **more}}
    schema = {"type": "object", "properties": properties, "required": ["extra"]}
    tools = {"tools": [{**NAMED, "inputSchema": schema}]}
    assert codes(check(tmp_path, rule("call.args.extra.x == 'y'"), tools)) == expected


def test_tools_of_one_name_have_the_arguments_of_both(tmp_path: Path) -> None:
    other = {"type": "object", "properties": {"query": {"type": "string"}}, "required": ["query"]}
    tools = [{"tools": [TOOL]}, {"tools": [{"name": "refund", "inputSchema": other}]}]
    assert codes(check(tmp_path, rule("call.args.order == call.args.query"), tools)) == [
        "cel/maybe-absent",
        "cel/maybe-absent",
    ]
    assert codes(check(tmp_path, rule("call.args.quer == ''"), tools)) == ["cel/unknown-field"]


def test_inherited_files_are_not_checked_against_the_tools(tmp_path: Path) -> None:
    base = tmp_path / "base.yaml"
    base.write_text(
        "policyguard: 1\nname: base\n"
        "rules: {b: {tools: [nowhere], when: \"call.args.x == 1 || call.tool == 'no'\"}}\n"
    )
    (tmp_path / "tools.json").write_text(json.dumps({"tools": [TOOL]}))
    knowing = "extends: [core, ./base.yaml]\nschemas: tools.json\n"
    assert check(tmp_path, rule("call.args.order == 'x'"), head=knowing) == []
    assert codes(check(tmp_path, rule("true", "[nowhere]"), head=knowing)) == [
        "reference/unknown-tool"
    ]
    (tmp_path / "policy.yaml").rename(tmp_path / "middle.yaml")
    (tmp_path / "middle.yaml").write_text("policyguard: 1\nname: m\nschemas: tools.json\n")
    head = "extends: [./middle.yaml]\n"
    assert codes(check(tmp_path, rule("call.args.oder == 'x'"), head=head)) == ["cel/unknown-field"]


@pytest.mark.parametrize(
    ("named", "code"),
    [
        ("nowhere.json", "load/not-found"),
        (".", "load/not-a-file"),
        ("fifo", "load/not-a-file"),
        ("/etc/hostname", "load/outside-folder"),
        ("../beside.json", "load/outside-folder"),
        ("link.json", "load/outside-folder"),
        ("folder/link.json", "load/outside-folder"),
        ('"a\\0b"', "load/not-found"),
        ("large.json", "load/too-large"),
        ("latin.json", "yaml/encoding"),
    ],
)
def test_schema_file_must_be_in_the_policy_folder(named: str, code: str, tmp_path: Path) -> None:
    inside = tmp_path / "inside"
    (inside / "folder").mkdir(parents=True)
    good = json.dumps({"tools": [TOOL]})
    (tmp_path / "beside.json").write_text(good)
    (inside / "folder" / "tools.json").write_text(good)
    (inside / "link.json").symlink_to(tmp_path / "beside.json")
    (inside / "folder" / "link.json").symlink_to("../../beside.json")
    (inside / "large.json").write_text(" " * (1024 * 1024) + good)
    (inside / "latin.json").write_bytes(b'{"tools": "\xff"}')
    os.mkfifo(inside / "fifo")
    (wrong, *_) = check(inside, "", head=f"schemas: {named}\n")
    assert wrong.code == code
    assert check(inside, rule("true"), head="schemas: folder/tools.json\n") == []
    assert check(inside, rule("true"), head="schemas: folder/../folder/tools.json\n") == []


BROKEN: list[tuple[str, str, tuple[int, int]]] = [
    ("{", "json/syntax", (1, 2)),
    ("3", "tools/form", (1, 1)),
    ('{"tools": {}}', "tools/form", (1, 1)),
    ('{"error": {"code": -32601}}', "tools/form", (1, 1)),
    ('{"tools": []}', "tools/form", (1, 1)),
    ('{"tools":\n [3]}', "tools/form", (2, 3)),
    ('{"tools":\n [{"inputSchema": {}}]}', "tools/form", (2, 3)),
    ('[{"type": "function"}]', "tools/form", (1, 2)),
    ('[{"name": ""}]', "tools/form", (1, 2)),
    ('[{"name": 7}]', "tools/form", (1, 2)),
    ('{"tools": [{"name": "a"}],\n "nextCursor": "b"}', "tools/incomplete", (2, 2)),
    ('{"tools": [{"name": "a", "inputSchema": []}]}', "tools/malformed", (1, 41)),
    ('[{"name": "a", "parameters": {"type": "strin"}}]', "tools/malformed", (1, 39)),
    ('[{"name": "a", "parameters": {"properties": 3}}]', "tools/malformed", (1, 45)),
    ('[{"name": "a", "parameters": {"required": "x"}}]', "tools/malformed", (1, 43)),
    ('[{"name": "a", "name": "b"}]', "json/duplicate-key", (1, 16)),
]


@pytest.mark.parametrize(("text", "code", "position"), BROKEN, ids=range(len(BROKEN)))
def test_malformed_file_is_an_error_with_its_place(
    text: str, code: str, position: tuple[int, int], tmp_path: Path
) -> None:
    (wrong,) = check(tmp_path, rule("call.args.x == 1", "[whatever]"), text)
    assert (wrong.code, (wrong.span.line, wrong.span.column)) == (code, position)
    assert wrong.span.file.endswith("tools.json")
    assert wrong.severity == "error"


KEYS = ["type", "properties", "required", "items", "enum", "const", "anyOf", "allOf", "$ref", "a"]
KEYS.append("additionalProperties")
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 3) | st.sampled_from(["string", "object", "x"]),
    lambda below: (
        st.lists(below, max_size=3) | st.dictionaries(st.sampled_from(KEYS), below, max_size=4)
    ),
    max_leaves=12,
)


@settings(max_examples=examples(300))
@given(JSON)
def test_every_schema_gives_a_type(schema: Any) -> None:
    root = parse(json.dumps(schema), "x.json").root
    assert root is not None
    found, wrong = argument_type(root)
    assert isinstance(found, MapType | RecordType)
    assert all(one.code == "tools/malformed" for one in wrong)


@pytest.mark.parametrize("kind", ["circle", "chain", "late chain", "doubling"])
def test_recursive_references_are_fast(kind: str) -> None:
    many = 2000
    names = [f"a{number}" for number in range(many)]
    if kind == "circle":
        parts = {"a0": {"type": "object", "properties": {"x": {"$ref": "#/$defs/a0"}}}}
    elif kind.endswith("chain"):
        parts = {name: {"$ref": f"#/$defs/{after}"} for name, after in pairwise(names)}
    else:
        parts = {
            name: {
                "type": "object",
                "properties": {side: {"$ref": f"#/$defs/{after}"} for side in ("l", "r")},
            }
            for name, after in pairwise(names)
        }
    before = {name: {"type": "string"} for name in names if kind == "late chain"}
    properties = {**before, "x": {"$ref": "#/$defs/a0"}}
    schema = {"type": "object", "properties": properties, "$defs": parts}
    root = parse(json.dumps(schema), "x.json").root
    assert root is not None
    begun = time.process_time()
    found, wrong = argument_type(root)
    assert time.process_time() - begun < 2
    assert wrong == []
    assert isinstance(found, RecordType)


def test_decision_does_not_depend_on_the_types(tmp_path: Path) -> None:
    """A call that violates its schema is evaluated as without it."""
    rules = rule("has(call.args.amount) && call.args.amount > 200")
    calls = [{"amount": 250}, {"amount": 2}, {"amount": "250"}, {}, {"amount": None}]
    decided = []
    for head in ("schemas: tools.json\n", "mode: enforce\n"):
        assert check(tmp_path, rules, {"tools": [TOOL]}, head=head) == []
        guard = Guard.load(tmp_path / "policy.yaml")
        decided.append(
            [guard.session(f"s{n}").check("refund", args).effect for n, args in enumerate(calls)]
        )
    assert decided[0] == decided[1]
    assert set(decided[0]) == {"block", "allow"}


def test_cached_policy_is_checked_against_the_current_tools(tmp_path: Path) -> None:
    assert check(tmp_path, rule("call.args.order == 'x'"), {"tools": [TOOL]}) == []
    Guard.load(tmp_path / "policy.yaml")
    Guard.load(tmp_path / "policy.yaml")
    (tmp_path / "tools.json").write_text(json.dumps({"tools": [{"name": "other"}]}))
    with pytest.raises(PolicyError) as raised:
        Guard.load(tmp_path / "policy.yaml")
    assert "reference/unknown-tool" in str(raised.value)
