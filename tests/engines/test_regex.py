"""RE2: the behavior that we rely on, and each surprise that the module handles."""

from __future__ import annotations

import re
import time

import pytest
import re2
from hypothesis import given
from hypothesis import strategies as st

from policyguard.engines.regex import Regex, RegexError, RegexSet

SURROGATE = "\ud800"


def test_search_and_span_count_code_points() -> None:
    regex = Regex("(?i)rate.?limit")
    text = "zażółć 🐱: Rate-Limit exceeded"
    start = text.index("Rate")
    assert regex.search(text)
    assert regex.find_span(text) == (start, start + len("Rate-Limit"))
    assert not regex.search("rating")
    assert regex.find_span("rating") is None
    assert Regex("").find_span("x") == (0, 0)
    assert Regex(r"\z").find_span("né") == (2, 2)


@pytest.mark.parametrize(
    ("pattern", "text", "expected"),
    [
        (r"\d+", "a1b22c", "aXbXc"),
        ("x", "abc", "abc"),
        ("", "né", "XnXéX"),
        ("^a", "aaa", "Xaa"),
        (r"\bé", "é éé", "é éé"),
        ("é", "é éé", "X XX"),
        ("a|$", "ba", "bXX"),
        ("(a)(b)?", "abac", "XXc"),
    ],
)
def test_replace(pattern: str, text: str, expected: str) -> None:
    assert Regex(pattern).replace(text, "X") == expected


def test_the_replacement_is_literal() -> None:
    assert Regex("(b)").replace("abc", r"\1\g<1>$1") == r"a\1\g<1>$1c"


def test_text_without_a_match_is_unchanged() -> None:
    text = f"a{SURROGATE}b"
    assert Regex("x").replace(text, "y") is text


@given(
    st.text(alphabet="ab1 é🐱", max_size=40),
    st.sampled_from(["a", "a+", "[ab]+", "b*1", "é|🐱", " a|b"]),
)
def test_replace_agrees_with_the_standard_library(text: str, pattern: str) -> None:
    """They differ only in empty matches, which are left out."""
    compiled = re.compile(pattern)
    assert Regex(pattern).replace(text, "_") == compiled.sub("_", text)
    found = compiled.search(text)
    assert Regex(pattern).find_span(text) == (found.span() if found else None)


@pytest.mark.parametrize("pattern", ["a(", "(?=a)", "a{2000}", r"(a)\1", "[z-a]", "a**"])
def test_an_invalid_pattern_has_a_reason(pattern: str) -> None:
    with pytest.raises(RegexError) as caught:
        Regex(pattern)
    assert caught.value.pattern == pattern
    assert caught.value.reason
    assert "b'" not in caught.value.reason
    with pytest.raises(RegexError) as from_set:
        RegexSet(["fine", pattern])
    assert from_set.value.reason == caught.value.reason


def test_a_lone_surrogate_is_not_a_pattern() -> None:
    for compiled in (Regex, lambda pattern: RegexSet(["fine", pattern])):
        with pytest.raises(RegexError, match="lone surrogate"):
            compiled("\ud800")


def test_invalid_patterns_print_nothing(capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(RegexError):
        Regex("a(")
    with pytest.raises(RegexError):
        RegexSet(["a("])
    assert capfd.readouterr() == ("", "")


def test_no_pattern_backtracks() -> None:
    """The standard library would take longer than the age of the universe."""
    assert not Regex("(a*)*(a*)*(a*)*b").search("a" * 50_000)
    assert RegexSet(["(a|aa)+$"]).first_match("a" * 50_000 + "!") is None


class TestRegexSet:
    def test_the_first_in_list_order_wins(self) -> None:
        patterns = RegexSet(["timeout", "time", "out", "t"])
        assert patterns.first_match("out of time") == 1
        assert patterns.first_match("a timeout") == 0
        assert patterns.first_match("no") is None
        assert len(patterns) == 4

    def test_none_and_empty(self) -> None:
        assert RegexSet([]).first_match("x") is None
        assert RegexSet([""]).first_match("") == 0
        assert RegexSet(["a", "a"]).first_match("a") == 0

    def test_long_texts_are_searched_at_both_ends(self) -> None:
        patterns = RegexSet(["needle"], head=10, tail=10)
        assert patterns.first_match("needle" + "." * 100) == 0
        assert patterns.first_match("." * 100 + "needle") == 0
        assert patterns.first_match("." * 50 + "needle" + "." * 50) is None
        assert patterns.first_match("." * 7 + "needle" + "." * 7) == 0, "20 characters are not long"

    def test_no_match_spans_the_cut(self) -> None:
        patterns = RegexSet(["AB"], head=3, tail=3)
        assert patterns.first_match("..A" + "xxxx" + "B..") is None

    def test_without_a_tail(self) -> None:
        assert RegexSet(["b"], head=3, tail=0).first_match("aaab") is None

    @given(
        st.lists(st.sampled_from(["a", "b+", "^c", "d$", "a.c", "x"]), max_size=6),
        st.text("abcdx", max_size=12),
    )
    def test_it_agrees_with_single_patterns(self, patterns: list[str], text: str) -> None:
        expected = next((i for i, p in enumerate(patterns) if re.search(p, text)), None)
        assert RegexSet(patterns).first_match(text) == expected


class TestSurprises:
    """The surprises of `re2` that the module's docstring lists."""

    def test_a_set_returns_unordered_matches(self) -> None:
        text = "the quick brown fox"
        found = _set([rf"\b{word}\b" for word in (*text.split(), "cat")] * 8).Match(text)
        assert found != sorted(found)

    def test_an_empty_result_of_a_set_is_not_trusted(self) -> None:
        """According to RE2's header, a set that runs out of memory matches nothing."""
        patterns = RegexSet(["a", "b"])
        patterns._set = _set(["something else"])  # a set without the canary answers just so
        assert patterns._set.Match(b"b") is None
        assert patterns.first_match("b") == 1
        assert patterns.first_match("c") is None
        patterns._set = _set(["something else", "b"])
        assert patterns._set.Match(b"ab") == [1]
        assert patterns.first_match("ab") == 0, "an answer without the canary may be half an answer"

    def test_a_set_too_large_to_compile_is_searched_one_by_one(self) -> None:
        patterns = ["x{500}y", "b{400}", "ab"]
        starved = RegexSet(patterns, memory=20_000)
        assert starved._set is None
        assert starved.first_match("ab") == 2
        assert starved.first_match("b" * 400) == 1

    def test_a_lone_surrogate_raises_in_re2_and_not_here(self) -> None:
        text = f"a{SURROGATE}b"
        with pytest.raises(UnicodeEncodeError):
            re2.search("b", text)
        assert Regex("b").search(text)
        assert Regex("b").find_span(text) == (2, 3)
        assert Regex("b").replace(text, "c") == "a?c"
        assert RegexSet(["b"]).first_match(text) == 0

    def test_a_lone_surrogate_in_a_pattern_is_rejected(self) -> None:
        with pytest.raises(RegexError, match="surrogate"):
            Regex(SURROGATE)

    def test_errors_of_re2_are_bytes(self) -> None:
        options = re2.Options()
        options.log_errors = False
        with pytest.raises(re2.error) as caught:
            re2.compile("a(", options)
        assert isinstance(caught.value.args[0], bytes)

    def test_adding_to_a_set_gives_no_reason(self) -> None:
        with pytest.raises(re2.error) as caught:
            _set(["a("])
        assert "missing" not in str(caught.value)

    def test_nul_does_not_end_a_text(self) -> None:
        assert Regex("b").search("a\0b")
        assert RegexSet(["b"]).first_match("a\0b") == 0


def _set(patterns: list[str]) -> re2.Set:
    options = re2.Options()
    options.log_errors = False
    result = re2.Set.SearchSet(options)
    for pattern in patterns:
        result.Add(pattern)
    result.Compile()
    return result


def test_more_patterns_than_one_automaton_holds_are_not_tried_singly() -> None:
    patterns = [f"error {number:05} happened" for number in range(12_000)]
    texts = [f"an error {number:05} happened" for number in range(0, 12_000, 400)]
    many = RegexSet(patterns)
    assert many.first_match("no match") is None
    started = time.process_time()
    assert [many.first_match(text) for text in texts] == [*range(0, 12_000, 400)]
    in_passes = time.process_time() - started
    regexes = [Regex(pattern) for pattern in patterns]
    started = time.process_time()
    for text in texts:
        assert sum(regex.search(text) for regex in regexes) == 1
    assert in_passes < (time.process_time() - started) / 5


def test_the_first_invalid_pattern_of_many_is_reported() -> None:
    patterns = [f"error {number:05} happened" for number in range(12_000)]
    patterns[9_000], patterns[10_000] = "a(", "b("
    with pytest.raises(RegexError, match=r"a\("):
        RegexSet(patterns)
