"""Redaction in texts: nothing that matches is left, and nothing else changes."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from policyguard.compiler import check_policy
from policyguard.compiler.build.named_patterns import NamedPatterns
from policyguard.compiler.build.pattern_redactor import PatternRedactor
from policyguard.engines.regex import Regex
from policyguard.model.errors import ExpressionError

PATTERNS = [
    ("card", r"\b4[0-9]{3}(?:[ -]?[0-9]{4}){3}\b"),
    ("key", r"AKIA[0-9A-Z]{4}"),
    ("pair", r"aa"),
    ("line", r"(?m)^#.*$"),
    ("empty", r"q*"),
    ("accent", r"é+\x{200b}"),
]
PARTS = [
    *(
        "4111 1111 1111 1111",
        "4111\u00a01111\u20101111\u200b1111",
        "AKIAABCD",
        "AKIA",
        "BCDE",
        "a",
        "aaa",
    ),
    *("\x1b[31m", "41\x1b[1m11111111111111", "\x1b", "\x1b]0;AKIA\x07"),
    *("#", "\n", "é", "\u200b", "q", "[card]", "[", "]", "日本", "\ud800", " ", "1"),
]


def core_patterns() -> NamedPatterns:
    compiled, _ = check_policy("core", environ={})
    assert compiled is not None
    return NamedPatterns(compiled.policy)


@given(st.lists(st.sampled_from(PARTS), max_size=12).map("".join), st.integers(1, 200))
@example(
    "4111 1111 1111 1111AKIA\x1b]0;AKIA\x07[4111 1111 1111 11114111 1111 1111 1111", 52
)  # the cut ends a number
def test_no_match_remains(text: str, max_chars: int) -> None:
    redactor = PatternRedactor(PATTERNS, max_chars)
    redacted = redactor.redact(text)
    assert not redactor.occurs_in(redacted)
    kept = redacted.partition("\n[… ")[0] if len(text) > max_chars else redacted
    for name, source in PATTERNS:
        if name != "empty":
            assert not Regex(source).search(kept)
    if len(text) <= max_chars:
        assert (redacted is text) is not redactor.occurs_in(text)
    if len(redacted) <= max_chars:  # a label may be longer than what it replaces
        assert redactor.redact(redacted) is redacted


@given(st.lists(st.sampled_from([part for part in PARTS if part != "[card]"]), max_size=8))
def test_neighbours_do_not_share_a_match(texts: list[str]) -> None:
    redactor = PatternRedactor(PATTERNS[:2], 10_000)
    redacted = [redactor.redact(text) for text in redactor.redact_across(texts)]
    assert len(redacted) == len(texts)
    assert not redactor.occurs_in("".join(redacted).replace("[card]", "").replace("[key]", " "))


@pytest.mark.parametrize(
    ("text", "redacted"),
    [
        ("\x1b[01;31m\x1b[Kfour\x1b[m", "\x1b[01;31m\x1b[K[word]\x1b[m"),
        ("a fo\x1b[1mu\x1b[0mr b", "a [word] b"),
        ("\x1b]8;;x\x1b\\four\x1b]8;;\x07", "\x1b]8;;x\x1b\\[word]\x1b]8;;\x07"),
        ("\x1b[1mfourteen", "\x1b[1mfourteen"),
    ],
)
def test_colours_of_a_terminal_hide_nothing(text: str, redacted: str) -> None:
    assert PatternRedactor([("word", r"\bfour\b")], 100).redact(text) == redacted


@pytest.mark.parametrize("before", ["", "     7\t", "     7→", "id_rsa:7:", "> ", "+", "  "])
def test_a_private_key_is_found_behind_line_numbers(before: str) -> None:
    lines = ["-----BEGIN RSA PRIVATE KEY-----", *["MIIEvQIBADANBgkqhkiG9w0BAQEFAASC"] * 3]
    end = ["Ab9=", "-----END RSA PRIVATE KEY-----"]
    secrets = core_patterns().select_redactor(("secret_*",))
    whole = "".join(f"{before}{line}\n" for line in lines + end)
    assert secrets.redact(f"{whole}bye") == f"{before}[secret_private_key]\nbye"
    cut = "".join(f"{before}{line}\n" for line in lines)
    assert "MIIE" not in secrets.redact(cut)
    prose = "-----BEGIN RSA PRIVATE KEY-----\nis how internationalization begins\nor so\n"
    assert secrets.redact(prose).endswith("is how internationalization begins\nor so\n")


def test_matches_that_overlap_are_one() -> None:
    redactor = PatternRedactor([("a", "bcd"), ("b", "abc"), ("c", "cde")], 100)
    assert redactor.redact("xabcdey") == "x[b]y"


def test_a_match_at_the_cut_is_seen_whole() -> None:
    redactor = PatternRedactor([("key", "AKIA[0-9]{4}")], 10)
    assert redactor.redact("12345678AKIA1234 AKIA1234").startswith("12345678[key]\n[… 9 ")


def test_a_pattern_that_matches_what_replaces_it_is_an_error() -> None:
    with pytest.raises(ExpressionError, match="matches what replaces it"):
        PatternRedactor([("word", "[a-z]+")], 100).redact("secret")


def test_patterns_of_core_find_nothing_in_their_labels() -> None:
    patterns = core_patterns()
    redactor = patterns.select_redactor(("*",))
    for name, _ in patterns.find(("*",)):
        assert redactor.redact(f"[{name}]") == f"[{name}]"


def test_a_cut_match_is_found_behind_replacements_of_any_length() -> None:
    redactor = PatternRedactor([("n" * 100, "a"), ("pin", r"\bpin-[0-9]{4}\b")], 1000)
    text = "a " * 495 + "  pin-12345"
    assert "pin-" not in redactor.redact(text)
