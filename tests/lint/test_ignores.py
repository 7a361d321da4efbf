"""`# policyguard: ignore[code] reason`: what is silenced is said why, and still there."""

from __future__ import annotations

from pathlib import Path

from policyguard.lint import LintResult, lint_paths

LIMITED = "limits: {default: {failures: {max: 3}}}\n"
POLLS = """policyguard: 1
name: polls
limits:
  tools:
    get_a: {{polling: {{cooldown: 30s}}}}{a}
{above}    get_b: {{polling: {{cooldown: 30s}}}}
"""


def _lint(folder: Path, text: str, **settings) -> LintResult:
    file = folder / "policy.yaml"
    file.write_text(text)
    return lint_paths([file], **settings)


def _codes(result: LintResult) -> list[tuple[str, int]]:
    return [(found.code, found.span.line) for found in result.diagnostics]


def test_a_comment_is_about_its_line_or_the_next(tmp_path):
    both = [("lint/unbounded-polling", 5), ("lint/unbounded-polling", 6)]
    assert _codes(_lint(tmp_path, POLLS.format(a="", above=""))) == both
    ignore = "# policyguard: ignore[lint/unbounded-polling] the host ends it"
    behind = _lint(tmp_path, POLLS.format(a=f"  {ignore}", above=""))
    assert _codes(behind) == [("lint/unbounded-polling", 6)]
    assert [(one.diagnostic.span.line, one.reason) for one in behind.ignored] == [
        (5, "the host ends it")
    ]
    above = _lint(tmp_path, POLLS.format(a="", above=f"    {ignore}\n    # and more\n"))
    assert _codes(above) == [("lint/unbounded-polling", 5)]


def test_a_comment_is_about_the_file(tmp_path):
    ignore = (
        "# policyguard: ignore-file[lint/unbounded-polling, lint/refuses-nothing] all of them\n"
    )
    result = _lint(tmp_path, ignore + POLLS.format(a="", above=""))
    assert [found.code for found in result.diagnostics] == ["lint/unused-ignore"]
    assert len(result.ignored) == 2


def test_without_a_reason_nothing_is_ignored(tmp_path):
    for comment in ("ignore[lint/unbounded-polling]", "ignore[lint/unbounded-polling] …"):
        result = _lint(tmp_path, POLLS.format(a=f" # policyguard: {comment}", above=""))
        found = {one.code: one for one in result.diagnostics if one.span.line == 5}
        assert found.keys() == {"lint/unbounded-polling", "lint/ignore-syntax"}
        assert found["lint/ignore-syntax"].severity == "error"
        assert "needs a reason" in found["lint/ignore-syntax"].message


def test_a_comment_that_is_not_understood_is_an_error(tmp_path):
    for comment in ("ignore lint/unbounded-polling x", "ignore[] x", "ignore[lint/x reason"):
        result = _lint(tmp_path, f"policyguard: 1\nname: x # policyguard: {comment}\n{LIMITED}")
        assert _codes(result) == [("lint/ignore-syntax", 2)]


def test_other_comments_are_left_alone(tmp_path):
    text = (
        f"# policyguard: 1\n# policyguard: ignorance is bliss\npolicyguard: 1\nname: x\n{LIMITED}"
    )
    assert _codes(_lint(tmp_path, text)) == []
    quoted = f"policyguard: 1\nname: 'x # policyguard: ignore[a]'\n{LIMITED}"
    assert _codes(_lint(tmp_path, quoted)) == []


def test_an_unknown_code_is_reported_with_the_closest(tmp_path):
    text = f"policyguard: 1\nname: x # policyguard: ignore[lint/bare-numbr] why\n{LIMITED}"
    (found,) = _lint(tmp_path, text).diagnostics
    assert found.code == "lint/unknown-code"
    assert found.help == "did you mean `lint/bare-number`?"
    assert found.lines[0][found.span.column - 1 : found.span.end_column - 1] == "lint/bare-numbr"


def test_a_comment_with_nothing_to_ignore_is_reported(tmp_path):
    comment = "# policyguard: ignore[lint/bare-number, yaml/number-trap] old"
    text = f"policyguard: 1\nname: x {comment}\n{LIMITED}"
    result = _lint(tmp_path, text)
    assert _codes(result) == [("lint/unused-ignore", 2)] * 2
    above = "# policyguard: ignore[lint/unused-ignore] no\n"
    again = _lint(tmp_path, text.replace("name", f"{above}name"))
    assert _codes(again) == [("lint/unused-ignore", 2), *[("lint/unused-ignore", 3)] * 2]
    assert "cannot be ignored" in again.diagnostics[0].message


def test_what_keeps_a_policy_from_loading_is_never_ignored(tmp_path):
    text = "policyguard: 1\nname: x\nbudget: {} # policyguard: ignore[schema/unknown-key] later\n"
    result = _lint(tmp_path, text)
    assert _codes(result) == [("schema/unknown-key", 3)]
    assert not result.ignored


def test_a_warning_of_the_compiler_can_be_ignored(tmp_path):
    rule = "rules: {a: {tools: [b], effect: ask, message: '{limit} left'%s}}\n"
    text = f"policyguard: 1\nname: x\n{rule}"
    assert _codes(_lint(tmp_path, text % "")) == [("reference/placeholder", 3)]
    text = text.replace("\n", " # policyguard: ignore[reference/placeholder] so be it\n")
    ignored = _lint(tmp_path, text % "")
    assert [found.code for found in ignored.diagnostics] == ["lint/unused-ignore"] * 2
    assert [one.diagnostic.code for one in ignored.ignored] == ["reference/placeholder"]


def test_of_a_policy_that_does_not_load_no_comment_is_called_unused(tmp_path):
    text = "policyguard: 1\nname: x # policyguard: ignore[lint/bare-number] why\nbudget: {}\n"
    assert _codes(_lint(tmp_path, text)) == [("schema/unknown-key", 3)]


def test_what_is_not_selected_is_not_called_unused(tmp_path):
    ignore = " # policyguard: ignore[lint/unbounded-polling] the host ends it"
    text = POLLS.format(a=ignore, above="")
    assert _codes(_lint(tmp_path, text, select=["lint/bare-number"])) == []
    assert _codes(_lint(tmp_path, text, ignore=["lint/unbounded-polling"])) == []
