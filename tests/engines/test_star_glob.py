"""Globs with stars match what the regular expression of them matches."""

from __future__ import annotations

import re

from hypothesis import given, settings
from hypothesis import strategies as st

from policyguard.engines.star_glob import StarGlob
from tests.examples import examples

GLOBS = st.text("ab*", max_size=6).filter(lambda glob: "*" in glob)


@given(GLOBS, st.text("ab\n", max_size=8))
@settings(max_examples=examples(800), deadline=None)
def test_star_stands_for_any_text(glob: str, name: str) -> None:
    pattern = ".*".join(re.escape(part) for part in glob.split("*"))
    expected = re.fullmatch(pattern, name, re.DOTALL) is not None
    assert StarGlob(glob).matches(name) is expected


def test_parts_do_not_overlap() -> None:
    assert not StarGlob("ab*ba").matches("aba")
    assert not StarGlob("a*b*b").matches("ab")
    assert StarGlob("a*b*b").matches("abb")
