"""The lock holds what was reviewed: it survives a round trip, and nothing altered is read."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from policyguard.engines.json_schema import Schema
from policyguard.pins.lock import (
    MAX_LOCK_BYTES,
    MAX_SERVER_TOOLS,
    LockError,
    PinnedServer,
    PinnedTool,
    format_lock,
    read_lock,
)
from policyguard.report.odd_characters import mark_odd_characters, skeleton
from tests.examples import examples
from tests.pins.tools import LIST, READ, lock_of

SCHEMA = Path(__file__).parents[2] / "schemas" / "tools-lock.schema.json"
_texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | _texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_texts, inner, max_size=3),
    max_leaves=10,
)
_tools = st.lists(
    st.fixed_dictionaries(
        {"name": _texts.filter(bool)},
        optional={
            "title": _texts,
            "description": _texts,
            "inputSchema": st.dictionaries(_texts, _values, max_size=3),
            "outputSchema": st.dictionaries(_texts, _values, max_size=3),
            "annotations": st.dictionaries(_texts, st.booleans(), max_size=3),
        },
    ),
    max_size=4,
    unique_by=lambda tool: tool["name"],
)


@settings(max_examples=examples(100), deadline=None)
@given(st.dictionaries(_texts, _tools, max_size=3))
def test_a_lock_survives_a_round_trip(servers: dict[str, Any]) -> None:
    lock = lock_of(**servers)
    text = format_lock(lock)
    assert text.isascii()
    assert read_lock(text.encode()) == lock
    assert format_lock(read_lock(text.encode())) == text
    assert Schema(json.loads(SCHEMA.read_text())).validate(json.loads(text)) == []


@given(_tools, st.randoms())
def test_the_order_of_keys_and_tools_does_not_matter(tools: list[Any], random: Any) -> None:
    def shuffled(value: Any) -> Any:
        if isinstance(value, dict):
            keys = [*value]
            random.shuffle(keys)
            return {key: shuffled(value[key]) for key in keys}
        return [*map(shuffled, value)] if isinstance(value, list) else value

    other = [shuffled(tool) for tool in tools]
    random.shuffle(other)
    assert format_lock(lock_of(a=other)) == format_lock(lock_of(a=tools))


@pytest.mark.parametrize("part", ["title", "description", "inputSchema", "annotations"])
def test_an_altered_definition_is_refused(part: str) -> None:
    document = json.loads(format_lock(lock_of(fs=[READ, LIST])))
    tool = document["servers"]["fs"]["tools"]["read_file"]
    del tool["definition"][part]
    with pytest.raises(LockError, match="'read_file' of 'fs' does not have the hashes"):
        read_lock(json.dumps(document).encode())


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{}",
        '{"policyguard": 2, "servers": {}}',
        '{"policyguard": 1, "servers": {}, "more": 1}',
        '{"policyguard": 1, "servers": {"a": {"name": "", "version": "", "tools": [1]}}}',
        '{"a":' * 100_000,
        "\xff",
        " " * (MAX_LOCK_BYTES + 1),
    ],
)
def test_what_is_no_lock_is_refused(text: str) -> None:
    with pytest.raises(LockError):
        read_lock(text.encode("latin-1"))


@pytest.mark.parametrize(
    "tools",
    [
        [{}],
        [{"name": 3}],
        [READ, READ],
        [{"name": "a", "description": "x" * 2_000_000}],
        [{"name": "a", "description": "\ud800"}],
        [{"name": "a", "inputSchema": {"default": float("inf")}}],
        [{"name": str(number)} for number in range(MAX_SERVER_TOOLS + 1)],
    ],
)
def test_what_cannot_be_pinned_is_refused(tools: list[dict[str, Any]]) -> None:
    with pytest.raises(LockError):
        PinnedServer.of("fs", "1", tools)


def test_ten_thousand_tools_are_pinned() -> None:
    tools = [{"name": f"tool_{number}"} for number in range(MAX_SERVER_TOOLS)]
    assert len(read_lock(format_lock(lock_of(a=tools)).encode()).servers["a"].tools) == len(tools)


def test_numbers_of_different_forms_differ() -> None:
    one, other = (PinnedTool.of({"inputSchema": {"default": value}}) for value in (1, 1.0))
    assert one.sha256 != other.sha256


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain, naïve text: Привет, 日本語 ⚠️ 👩‍💻", None),
        ("a\u200bb", "a⟨U+200B ZERO WIDTH SPACE⟩b"),
        ("\u202e\u2066x", "⟨U+202E RIGHT-TO-LEFT OVERRIDE and 1 more hidden⟩x"),
        ("x\U000e0041", "x⟨U+E0041 TAG LATIN CAPITAL LETTER A⟩"),
        ("x\U000e0101", "x⟨U+E0101 VARIATION SELECTOR-18⟩"),
        ("x\x1b[2J", "x⟨U+001B⟩[2J"),
        ("pаy", "pа⟨U+0430 CYRILLIC SMALL LETTER A⟩y"),
        ("ｘ", "ｘ⟨U+FF58 FULLWIDTH LATIN SMALL LETTER X⟩"),
        ("\u3164", "⟨U+3164 HANGUL FILLER⟩"),
    ],
)
def test_odd_characters_are_named(text: str, shown: str | None) -> None:
    assert mark_odd_characters(text) == (text if shown is None else shown)


@pytest.mark.parametrize(
    "name", ["rеad_file", "ｒead_file", "read-file", "Read_File", "reаd_fіle", "re\u00adad_file"]
)
def test_names_that_look_alike_are_told(name: str) -> None:
    assert skeleton(name) == skeleton("read_file")
    assert skeleton(name) != skeleton("read_files")
