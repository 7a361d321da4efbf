"""Calls that are alike by their arguments, and results that found nothing."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policyguard.engines.likeness import (
    CallLikeness,
    ResultLikeness,
    mask_call_words,
    normalize_command,
)


def _likeness(query: Any) -> str:
    """Return the query as it was folded; `as it is` if folding left it alone."""

    def fingerprint(tool: str, server: str, args: dict[str, Any]) -> tuple[str, str, tuple[()]]:
        return args["query"], "", ()

    alike = CallLikeness(fingerprint, ignore=(), fold=("query",), commands=())
    return alike.find("search", "", {"query": query, "page": 1}, "as it is")


@pytest.mark.parametrize(
    "query",
    ["New orders", "new  orders", " new orders", "new orders ", "new\torders", "new\u00a0orders"],
)
def test_case_and_white_space_are_folded(query: str) -> None:
    assert _likeness(query) == "new orders"


@pytest.mark.parametrize("query", ["new orders", "", 7, None])
def test_what_is_folded_already_stays(query: Any) -> None:
    assert _likeness(query) == "as it is"


@given(st.text(st.sampled_from("aB\u00df \t\n\u00a0\u200b\x00"), max_size=12))
def test_folding_is_casefold_and_single_spaces(query: str) -> None:
    folded = " ".join(query.casefold().split())
    assert _likeness(query) == ("as it is" if folded == query else folded)


@pytest.mark.parametrize(
    ("command", "normalized"),
    [
        ("cd /repo && make", "make"),
        ("cd /my files && make", "make"),
        ("cd /repo && CI=1 timeout 5 make # again", "make"),
        ("cd /repo; make", "cd /repo; make"),
        ("cd && make", "cd && make"),
        (["bash", "-lc", "make  # again"], ["bash", "-lc", "make"]),
        (["make", "# no comment"], ["make", "# no comment"]),
    ],
)
def test_commands_without_what_makes_no_difference(command: Any, normalized: Any) -> None:
    assert normalize_command(command) == normalized


def _mask_echo(text: str, **args: Any) -> str:
    likeness = ResultLikeness(
        str,
        mask=(),
        ignore=(),
        nothing=("No match", '"results": []', "0 rows"),
        ignores_order=False,
    )
    return likeness.mask_echo(text, args)


@pytest.mark.parametrize(
    ("text", "masked"),
    [
        ('no  matches for "red lamp"', 'no  matches for "#"'),
        ("No match for lamp or red.", "No match for # or #."),
        ('{"query":"red lamp","results":[]}', '{"query":"#","results":[]}'),
        ("found: red lamp", ""),
        ("no lamp", ""),
        ("no match", "no match"),
        (f"no match for red lamp{' ' * 1024}", ""),
    ],
)
def test_the_words_of_a_call_are_masked_where_nothing_was_found(text: str, masked: str) -> None:
    assert _mask_echo(text, query="red lamp", page=1, at="in") == masked


@given(st.lists(st.sampled_from(["lamp", "0", "rows", " ", "red"]), max_size=8).map("".join))
def test_words_are_masked_only_where_nothing_was_found(text: str) -> None:
    masked = _mask_echo(text, query="red lamp")
    found_nothing = "0rows" in text.replace(" ", "")
    assert bool(masked) == found_nothing
    assert "lamp" not in masked


def _fingerprint(text: str, *, in_order: bool = False) -> str:
    likeness = ResultLikeness(
        str, mask=("times",), ignore=("took",), nothing=(), ignores_order=True
    )
    return likeness(text, in_order)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("a\nb\nc", "c\na\nb"),
        ("a\r\nb", "b\r\na"),
        ("{'a', 'b'}", "{'b', 'a'}"),
        ('["a", "b"]', '["b","a"]'),
        ('{"n": [[2, 1], [3]], "m": 1}', '{"m": 1, "n": [[3], [1, 2]]}'),
        ('[\n  "a",\n  "b"\n]', '[\n  "b",\n  "a"\n]'),
        ("12:30 a\n12:31 b", "14:00 b\n15:00 a"),
        ('{"took": 7, "l": ["a", "b"]}', '{"took": 12, "l": ["b", "a"]}'),
    ],
)
def test_the_order_of_parts_makes_no_difference(one: str, other: str) -> None:
    assert _fingerprint(one) == _fingerprint(other)
    assert _fingerprint(one, in_order=True) != _fingerprint(other, in_order=True)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("a\nb\nb", "a\na\nb"),
        ("a\nb", "a\nb\nb"),
        ("a b", "b a"),
        ("move a, then b", "move b, then a"),
        ("1,open\n2,shut", "1,shut\n2,open"),
        (
            '[{"id": 1, "up": true}, {"id": 2, "up": false}]',
            '[{"id": 1, "up": false}, {"id": 2, "up": true}]',
        ),
        ('{"a": 1, "b": 2}', '{"a": 2, "b": 1}'),
        ("[1, 2", "[1, 3"),
        ("x" * 65535 + "\na", "a\n" + "x" * 65535),
    ],
)
def test_other_parts_and_what_holds_them_together_do(one: str, other: str) -> None:
    assert _fingerprint(one) != _fingerprint(other)


def test_deep_json_is_compared_as_text() -> None:
    deep = "[" * 5000 + "]" * 5000
    assert _fingerprint(deep) == _fingerprint(deep)


def test_a_broken_character_is_no_error() -> None:
    assert _fingerprint('["\ud800", "a"]') == _fingerprint('["a", "\ud800"]')


def test_the_order_counts_unless_it_is_ignored() -> None:
    likeness = ResultLikeness(str, mask=(), ignore=(), nothing=(), ignores_order=False)
    assert likeness("a\nb", False) != likeness("b\na", False)


@pytest.mark.parametrize(
    ("text", "masked"),
    [
        ("try 3: Lamp\n", "#"),
        ("The file notes/lamp.md has been written.", "The file #.md has been written."),
        ("lamp 3 of 9", "# of 9"),
        ("nothing of it", ""),
        ("", ""),
        ("lamp " * 300, ""),
    ],
)
def test_words_of_the_call_are_masked(text: str, masked: str) -> None:
    assert mask_call_words(text, {"command": "echo try 3: lamp > notes", "n": 9}) == masked
