"""What is printed says what it said, and does nothing where it is shown."""

from __future__ import annotations

import json

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from policyguard.report.escape import for_json, for_terminal

_ODD = "\x1b\x7f\x9b\u202e\u2028\u2003\\\n 😀a:#[]"
_TEXTS = st.text(st.characters(exclude_categories=["Cs"])) | st.text(_ODD)


def commands(text: str) -> list[str]:
    """The lines in which the runner of GitHub Actions looks further for a command."""
    return [line for line in text.split("\n") if "##[" in line or line.lstrip().startswith("::")]


@given(st.recursive(_TEXTS, lambda inner: st.lists(inner) | st.dictionaries(_TEXTS, inner)))
def test_json_is_plain_ascii_and_the_same(value: object) -> None:
    shown = for_json(msgspec.json.format(msgspec.json.encode(value), indent=2).decode())
    assert json.loads(shown) == value
    assert shown.isascii()
    assert shown.replace("\n", "").isprintable()
    assert not commands(shown)


@given(_TEXTS, st.integers(0, 9))
def test_a_text_is_one_line_that_commands_nothing(text: str, blanks: int) -> None:
    shown = for_terminal(text)
    assert shown.isprintable()
    assert not commands(" " * blanks + shown)
    assert for_terminal(shown) == shown


@pytest.mark.parametrize("text", ["std::vector::x", "a::error::b", "# [x](y)", "a #[b] c", ": :"])
def test_what_commands_nothing_stays_as_it_is(text: str) -> None:
    assert for_terminal(text) == text
