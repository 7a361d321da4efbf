"""Whether two globs can match one name."""

from __future__ import annotations

from itertools import product

from hypothesis import given
from hypothesis import strategies as st

from policyguard.compiler.build.selectors import compile_glob, globs_overlap

GLOBS = st.text("ab*?", max_size=4)
NAMES = ["".join(letters) for size in range(9) for letters in product("ab", repeat=size)]


@given(GLOBS, GLOBS)
def test_two_globs_overlap_if_and_only_if_there_is_such_a_name(one, other):
    first, second = compile_glob(one), compile_glob(other)
    # Whatever two such globs have in common, a name of eight letters shows.
    assert globs_overlap(one, other) == any(first(name) and second(name) for name in NAMES)


def test_long_globs_take_no_long_time():
    assert not globs_overlap("*a" * 120 + "b", "*a" * 120 + "c")
    assert globs_overlap("*a" * 120 + "*", "*b" * 120 + "*")
