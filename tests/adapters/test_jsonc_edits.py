"""Changes of JSON with comments: what is not changed keeps its meaning, its comments and form."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from policyguard.adapters.installation.jsonc import find_extensions, parse
from policyguard.adapters.installation.jsonc_edits import append_item, has_comments, remove_at

BLANKS = st.sampled_from(["", "", " ", "\n", "\r\n\t", " // c{\n", "/* }, */", '\n  /* "a": */ '])
KEYS = st.sampled_from(["hooks", "a", "b", 'x"//'])
VALUES = st.recursive(
    st.none() | st.integers() | st.sampled_from(["", "// no", "/* no */", "a,}", "é\\"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=3),
    max_leaves=8,
)
ITEM = {"hooks": [{"command": "ours"}]}
COMMENT = re.compile(r"// c\{|/\* \}, \*/|/\* \"a\": \*/")


@st.composite
def documents(draw: st.DrawFn) -> str:
    """Return the text of an object, with comments, line breaks and trailing commas in any place."""

    def show(value: Any) -> str:
        if isinstance(value, dict):
            parts = [f"{blank()}{json.dumps(key)}{blank()}:{show(value[key])}" for key in value]
            return blank() + "{" + joined(parts) + "}" + blank()
        if isinstance(value, list):
            return blank() + "[" + joined([show(item) for item in value]) + "]" + blank()
        return f"{blank()}{json.dumps(value)}{blank()}"

    def joined(parts: list[str]) -> str:
        trailing = "," if parts and draw(st.booleans()) else ""
        return ",".join(parts) + trailing + blank()

    def blank() -> str:
        return draw(BLANKS)

    hooks = st.dictionaries(KEYS, st.lists(VALUES, max_size=3), max_size=2)
    document = draw(st.dictionaries(st.sampled_from(["c", "d"]), VALUES, max_size=2))
    if draw(st.booleans()):
        document["hooks"] = draw(hooks)
    return show(document)


@given(documents(), KEYS)
def test_an_item_is_added_and_taken_out(text: str, event: str) -> None:
    before = parse(text)
    added = append_item(text, ("hooks", event), ITEM)
    items = before.get("hooks", {}).get(event, [])
    expected = {**before, "hooks": {**before.get("hooks", {}), event: [*items, ITEM]}}
    assert parse(added) == expected
    assert COMMENT.findall(added) == COMMENT.findall(text)
    assert find_extensions(text) or not find_extensions(added)
    removed = remove_at(added, ("hooks", event, len(items)))
    assert COMMENT.findall(removed) == COMMENT.findall(text)
    assert without_empty(parse(removed)) == without_empty(before)


def without_empty(value: Any) -> Any:
    """Return a value without the lists and objects in it that hold nothing."""
    if isinstance(value, dict):
        kept = {key: without_empty(inner) for key, inner in value.items()}
        return {key: inner for key, inner in kept.items() if inner not in ([], {})}
    if isinstance(value, list):
        return [inner for inner in map(without_empty, value) if inner not in ([], {})]
    return value


def item_paths(value: Any, path: tuple[str | int, ...]) -> Iterator[tuple[str | int, ...]]:
    """Yield the paths of all items of lists."""
    if isinstance(value, dict | list):
        for key, inner in value.items() if isinstance(value, dict) else enumerate(value):
            if isinstance(key, int):
                yield (*path, key)
            yield from item_paths(inner, (*path, key))


@given(documents(), st.data())
def test_any_item_is_taken_out(text: str, data: st.DataObject) -> None:
    expected: Any = parse(text)
    paths = [*item_paths(expected, ())]
    if not paths:
        return
    path = data.draw(st.sampled_from(paths))
    container = expected
    for key in path[:-1]:
        container = container[key]
    outside = has_comments(text, ()) and not has_comments(text, path)
    removed = remove_at(text, path)
    del container[path[-1]]
    assert without_empty(parse(removed)) == without_empty(expected)
    if outside:
        assert COMMENT.findall(removed) == COMMENT.findall(text)


def test_a_comment_does_not_swallow_what_follows() -> None:
    text = '{"a": [ // one\n 1, 2]}'
    assert parse(remove_at(text, ("a", 0))) == {"a": [2]}
    text = '{"a": [\n 1, // one\n 2\n]}'
    assert remove_at(text, ("a", 1)) == '{"a": [\n 1 // one\n]}'


def test_a_comment_before_a_line_break_of_windows_is_left_as_it_was() -> None:
    text = '{\r\n  "a": 1 // one\r\n}\r\n'
    added = append_item(text, ("hooks", "b"), ITEM)
    assert remove_at(added, ("hooks", "b", 0)) == text
    assert parse('{"a": 1} // one\r') == {"a": 1}


def test_the_form_of_what_is_around_is_taken_over() -> None:
    tabs = '{\n\t"a": 1, // one\n}\n'
    assert append_item(tabs, ("b",), 2) == '{\n\t"a": 1, // one\n\t"b": [\n\t\t2\n\t],\n}\n'
    inline = '{\r\n "a": {"b": [1]} }'
    assert append_item(inline, ("a", "b"), 2) == '{\r\n "a": {"b": [1, 2]} }'
    added = append_item(inline, ("c",), 2)
    assert added == '{\r\n "a": {"b": [1]},\r\n "c": [\r\n  2\r\n ]\r\n}'
