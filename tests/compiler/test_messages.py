"""Parsing of messages into texts and placeholders."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policyguard.compiler.build.messages import parse_message


@pytest.mark.parametrize(
    ("text", "parts", "stray"),
    [
        ("", ("",), ()),
        ("plain", ("plain",), ()),
        ("{rule}", ("", "rule", ""), ()),
        ("a {call.tool} b { tags.x }", ("a ", "call.tool", " b ", "tags.x", ""), ()),
        ("{{json}} {rule}", ("{json} ", "rule", ""), ()),
        ("{{{rule}}}", ("{", "rule", "}"), ()),
        ("{}", ("", "", ""), ()),
        ("a } b", ("a } b",), (2,)),
        ("a { b", ("a { b",), (2,)),
        ("{a{b}", ("{a", "b", ""), (0,)),
    ],
)
def test_message_is_parsed(text, parts, stray):
    found = parse_message(text)
    assert found.parts == parts
    assert found.stray_braces == stray
    for placeholder in found.placeholders:
        assert text[placeholder.start : placeholder.end].strip("{} ") == placeholder.name


@given(st.lists(st.text("ab{} .", max_size=5), min_size=1, max_size=5))
def test_doubled_braces_are_literal(texts):
    written = "{x}".join(text.replace("{", "{{").replace("}", "}}") for text in texts)
    # `{{` next to a placeholder's brace is read from the left.
    found = parse_message(written.replace("{x}", " {x} "))
    assert found.stray_braces == ()
    shown = [text.removesuffix(" ").removeprefix(" ") for text in found.parts[::2]]
    assert [text.strip() for text in shown] == [text.strip() for text in texts]
