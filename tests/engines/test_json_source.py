"""JSON as a located tree: values and their positions."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policyguard.engines.json_source import parse
from policyguard.engines.yaml_tree import MappingNode, Node, ScalarNode, SequenceNode, to_plain

TEXT = st.text(st.characters(exclude_categories=["Cs", "Cc", "Cn", "Co", "Zl"]))
VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | TEXT,
    lambda inner: st.lists(inner) | st.dictionaries(TEXT, inner),
)


def nodes(node: Node):
    yield node
    if isinstance(node, MappingNode):
        for key, value in node.entries:
            yield key
            yield from nodes(value)
    elif isinstance(node, SequenceNode):
        for item in node.items:
            yield from nodes(item)


@given(VALUES, st.booleans(), st.sampled_from([None, 2, "\t"]))
def test_every_value_has_its_position(value, escaped, indent):
    text = json.dumps(value, ensure_ascii=escaped, indent=indent)
    _, root, diagnostics = parse(text, "x.json")
    if any(found.code.startswith("yaml/") for found in diagnostics):  # forbidden characters
        return
    assert diagnostics == []
    assert to_plain(root) == value
    for node in nodes(root):
        assert json.loads(text[node.start : node.end]) == to_plain(node)


@given(st.text(alphabet='[]{}",:\\ntrue1.e- '))
def test_invalid_json_is_a_diagnostic(text):
    _, root, diagnostics = parse(text, "x.json")
    try:
        value = json.loads(text)
    except ValueError:
        assert root is None
        assert diagnostics[0].code == "json/syntax"
        return
    assert root is not None
    assert to_plain(root) == value


@pytest.mark.parametrize(
    ("text", "code", "position"),
    [
        ("[1,x]", "json/syntax", (1, 4)),
        ('{"a": 1\n"b": 2}', "json/syntax", (2, 1)),
        ("", "json/syntax", (1, 1)),
        ('{"a": NaN}', "json/syntax", (1, 1)),
        ("9" * 5000, "json/syntax", (1, 1)),
        ("[" * 65 + "]" * 65, "json/too-deep", (1, 65)),
        ("[" * 100_000, "json/too-deep", (1, 1)),
        ("[" + "1," * 100_001 + "1]", "json/too-large", (1, 200_000)),
        ('{"a": 1, "a": 2}', "json/duplicate-key", (1, 10)),
        (b"\xff", "yaml/encoding", (1, 1)),
        ("[" + " " * (1024 * 1024) + "]", "load/too-large", (1, 1)),
    ],
    ids=range(11),
)
def test_diagnostics_have_positions(text, code, position):
    _, root, (diagnostics, *_) = parse(text, "x.json")
    assert (diagnostics.code, (diagnostics.span.line, diagnostics.span.column)) == (code, position)
    assert (root is None) is (code != "json/duplicate-key")


def test_surrogate_pairs_are_decoded():
    _, root, _ = parse(r'"\ud83d\ude00"', "x.json")
    assert isinstance(root, ScalarNode)
    assert root.value == "😀"
