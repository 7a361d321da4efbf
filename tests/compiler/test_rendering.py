"""Diagnostics as text and as JSON."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policyguard.compiler import compile_policy
from policyguard.engines.source import SourceText
from policyguard.model.diagnostic import Diagnostic, PolicyError, Span, did_you_mean
from policyguard.report.findings.diagnostics import render_json, render_text


def found(line: str, start: int, end: int, **given: str) -> Diagnostic:
    text = "\n" * 13 + line
    offset = 13 + start
    source = SourceText("policies/team.yaml", text)
    return source.diagnostic(
        given.get("code", "cel/undeclared-reference"),
        given.get("message", "unknown variable `cal`"),
        source.span(offset, 13 + end),
        hint=given.get("hint"),
    )


def carets(line: str, start: int, end: int) -> tuple[str, str]:
    """Return the line as shown, and the line with the carets."""
    _, _, _, shown, under, *_ = render_text([found(line, start, end)]).split("\n")
    return shown, under


def test_report_format():
    line = '    when: cal.tool == "bash"'
    assert render_text([found(line, 10, 13, hint="did you mean `call`?")]) == (
        "error[cel/undeclared-reference]: unknown variable `cal`\n"
        "  --> policies/team.yaml:14:11\n"
        "   |\n"
        '14 |     when: cal.tool == "bash"\n'
        "   |           ^^^\n"
        "   = help: did you mean `call`?  (policyguard explain cel/undeclared-reference)\n"
    )


@pytest.mark.parametrize(
    ("line", "start", "end", "shown", "under"),
    [
        ("a: b", 3, 4, "14 | a: b", "   |    ^"),
        ("a: b", 4, 4, "14 | a: b", "   |     ^"),
        ("\ta: b", 4, 5, "14 |     a: b", "   |        ^"),
        ("a:\tb", 3, 4, "14 | a:  b", "   |     ^"),
        ("漢字: b", 4, 5, "14 | 漢字: b", "   |       ^"),
        ("a: 漢字", 3, 5, "14 | a: 漢字", "   |    ^^^^"),
        ("e\u0301: b", 4, 5, "14 | e\u0301: b", "   |    ^"),
        ("a\x1b[2J: b", 7, 8, "14 | a\\x1b[2J: b", "   |           ^"),
        ("a\u202e: b", 4, 5, "14 | a\\u202e: b", "   |          ^"),
        ("##[e]: b", 7, 8, "14 | ##\\x5be]: b", "   |           ^"),
        ("a: 🎈b", 4, 5, "14 | a: 🎈b", "   |      ^"),
    ],
)
def test_carets_mark_the_span(line, start, end, shown, under):
    assert carets(line, start, end) == (shown, under)


def test_long_line_is_cut_around_the_span():
    line = "a" * 1000 + "HERE" + "b" * 1000
    shown, under = carets(line, 1000, 1004)
    assert len(shown) < 180
    assert shown.startswith("14 | …")
    assert shown.endswith("…")
    assert shown[under.index("^") : under.rindex("^") + 1] == "HERE"


def test_several_lines_show_the_first_and_the_last():
    text = "a:\n  one\n  two\n  three\n"
    source = SourceText("p", text)
    diagnostic = source.diagnostic("c/d", "m", source.span(5, 22))
    assert render_text([diagnostic]) == (
        "error[c/d]: m\n --> p:2:3\n  |\n2 |   one\n  |   ^^^\n...\n4 |   three\n  |   ^^^^^\n"
    )


def test_control_characters_in_a_message_are_escaped():
    text = render_text([found("a: b", 3, 4, message="`\x1b[31m` \u202e\nforged", hint="\x07")])
    assert "`\\x1b[31m` \\u202e\\x0aforged" in text
    assert "\\x07" in text


def test_no_excerpt_without_source():
    span = Span("nothing.yaml", 1, 1, 1, 1)
    diagnostic = Diagnostic(code="load/not-found", severity="error", message="m", span=span)
    assert render_text([diagnostic]) == "error[load/not-found]: m\n --> nothing.yaml:1:1\n"


def test_diagnostics_are_sorted_and_unique():
    source = SourceText("b", "one\ntwo\n")
    late, early = (source.diagnostic("c/d", "m", source.span(at, at + 1)) for at in (4, 0))
    other = SourceText("a", "x").diagnostic("c/d", "m", Span("a", 1, 1, 1, 2))
    positions = [(one["file"], one["line"]) for one in render_json([late, early, other, late])]
    assert positions == [("a", 1), ("b", 1), ("b", 2)]


def test_json_has_every_field():
    (shown,) = json.loads(json.dumps(render_json([found("a: b", 3, 4, hint="h")])))
    assert shown == {
        "code": "cel/undeclared-reference",
        "severity": "error",
        "message": "unknown variable `cal`",
        "file": "policies/team.yaml",
        "line": 14,
        "column": 4,
        "end_line": 14,
        "end_column": 5,
        "help": "h",
    }


def test_policy_error_text_is_the_report():
    diagnostics = [found("a: b", 3, 4)]
    error = PolicyError(render_text(diagnostics), diagnostics)
    assert str(error) == render_text(diagnostics)
    assert error.diagnostics == tuple(diagnostics)
    assert isinstance(error, ValueError)


@given(st.text(), st.integers(0, 30), st.integers(0, 30))
def test_any_line_prints_no_control_character(line, start, length):
    line = line.replace("\n", " ")
    start = min(start, len(line))
    text = render_text([found(line, start, min(start + length, len(line)))])
    assert all(character == "\n" or character.isprintable() for character in text)


@pytest.mark.parametrize(
    ("word", "known", "expected"),
    [
        ("cal", ["call", "tags"], "did you mean `call`?"),
        ("agrs", ["tags", "args"], "did you mean `args`?"),
        ("Effect", ["effect"], "did you mean `effect`?"),
        ("xyz", ["effect"], None),
        ("", ["effect"], None),
        ("effect", [], None),
    ],
)
def test_close_names_are_suggested(word, known, expected):
    assert did_you_mean(word, known) == expected


def test_an_error_lists_problems_by_place(tmp_path):
    """Whatever part of the compiler finds them: an unknown name last, an unknown key first."""
    policy = tmp_path / "policy.yaml"
    policy.write_text(
        "policyguard: 1\nname: x\nrules:\n"
        "  one: {when: cal.tool == 'a', effect: block, message: 'no'}\n"
        "  two: {wen: 'true', effect: block, message: 'no'}\n"
        "  three: {when: call.tol == 'a', effect: block, message: 'no'}\n"
    )
    with pytest.raises(PolicyError) as raised:
        compile_policy(policy)
    lines = [found.span.line for found in raised.value.diagnostics]
    assert lines == sorted(lines)
    assert {4, 5, 6} <= set(lines)
