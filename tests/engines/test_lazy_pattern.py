"""Patterns that are compiled by their first use."""

from __future__ import annotations

import re

import pytest

from policyguard.engines.lazy_pattern import lazy_pattern


def test_a_lazy_pattern_is_like_a_compiled_one() -> None:
    pattern = lazy_pattern(r"(?P<word>[a-z]+)", re.IGNORECASE)
    for _ in range(2):
        found = pattern.search("1 Two")
        assert found is not None
        assert found["word"] == "Two"
    assert pattern.sub("x", "1 Two three") == "1 x x"
    assert pattern.pattern == r"(?P<word>[a-z]+)"


def test_an_invalid_pattern_fails_when_it_is_used() -> None:
    pattern = lazy_pattern("(")
    with pytest.raises(re.error):
        pattern.search("")
