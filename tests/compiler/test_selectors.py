"""Overlap of globs, and paths that selectors match."""

from __future__ import annotations

import re
from itertools import product

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from policyguard.compiler.build.selectors.path_selector import PathSelector
from policyguard.compiler.build.selectors.selector import (
    compile_glob,
    globs_overlap,
    tool_globs_overlap,
)
from policyguard.model.entry import Selector

GLOBS = st.text("ab*?", max_size=4)
NAMES = ["".join(letters) for size in range(9) for letters in product("ab", repeat=size)]


@given(GLOBS, GLOBS)
@example("ab", "*b")
@example("*b", "ab")
def test_globs_overlap_if_and_only_if_a_name_matches_both(one, other):
    first, second = compile_glob(one), compile_glob(other)
    # Names of up to eight letters suffice for globs this short.
    assert globs_overlap(one, other) == any(first(name) and second(name) for name in NAMES)


@given(st.text("ab*?é\n", max_size=5), st.text("abé\n", max_size=6))
@example("ab*ba", "aba")
@example("*", "")
def test_a_glob_matches_whole_names(glob: str, name: str) -> None:
    wildcards = {"*": ".*", "?": "."}
    regex = "".join(wildcards.get(character) or re.escape(character) for character in glob)
    assert compile_glob(glob)(name) == bool(re.fullmatch(regex, name, re.DOTALL))


def test_long_globs_are_fast():
    assert not globs_overlap("*a" * 120 + "b", "*a" * 120 + "c")
    assert globs_overlap("*a" * 120 + "*", "*b" * 120 + "*")


@pytest.mark.parametrize(
    ("one", "other", "overlap"),
    [
        ("read", "read", True),
        ("read", "re*", True),
        ("read", "mcp__fs__read", True),
        ("re*", "mcp__fs__read", True),
        ("write", "mcp__fs__read", False),
        ("mcp__fs__*", "mcp__fs__read", True),
        ("mcp__git__read", "mcp__fs__read", False),
    ],
)
def test_globs_overlap_where_one_tool_may_match_both(one: str, other: str, overlap: bool) -> None:
    assert tool_globs_overlap(one, other) is overlap
    assert tool_globs_overlap(other, one) is overlap


@pytest.mark.parametrize(("items", "found"), [(("**/.env",), False), ((".",), True)])
def test_an_empty_path_is_the_folder_of_the_session(items: tuple[str, ...], found: bool) -> None:
    assert PathSelector(Selector(items=items)).matches([""], "/work/project") is found
