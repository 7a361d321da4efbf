"""The formats of the report, each a function of the figures."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from html import unescape
from pathlib import Path

import msgspec
import pytest

from policyguard.report.replay.assessment import assess_harm, next_step, sort_rules_by_harm
from policyguard.report.replay.figures import (
    Figures,
    GateFigures,
    Harm,
    LabelFigures,
    RuleFigures,
    Share,
)
from policyguard.report.replay.renderers import RENDERERS
from policyguard.report.replay.text import render_text
from policyguard.report.style import PLAIN, Style
from policyguard.simulate import Replay, ReportSize, load, runs
from policyguard.traces import Reader, Skipped
from tests.simulate.recording import NO_SECRETS, failed, lines, policy, read, write

HOSTILE = (
    "\x1b[2J<script>alert(1)</script> <!-- ]]> </details> `x` ```\n# h | @octocat #1 "
    "[a](http://evil.example) ![i](//evil) **b** _c_ www.evil.example &lt; \u202e $x$ ~~s~~"
)


def _figures(folder: Path, *, keep: ReportSize | None = None) -> Figures:
    secret = f"/secret{HOSTILE}"
    trace = write(
        folder / "t.jsonl",
        lines(f"good {HOSTILE}", [read("/a"), read(secret), read("/b")], success=True),
        lines(
            "bad", [read(secret), failed(f"run{HOSTILE}", f"{HOSTILE} boom", n=1)], success=False
        ),
        lines("fine", [read("/a")], success=True),
        lines("unlabelled", [read("/secret")]),
        [HOSTILE],
    )
    replay = Replay(
        load(policy(folder / "new.yaml", NO_SECRETS)),
        observe=False,
        labels=None,
        baseline=load(policy(folder / "old.yaml", "")),
        report_size=keep,
    )
    replay.add(Reader().read(trace))
    figures = replay.finish()
    figures.gates = [
        GateFigures(f"policy.name == '{HOSTILE}'", True, {"policy.name": HOSTILE}),
        GateFigures("harm.rate > 0.9", False, {"harm.rate": "0.5"}),
        GateFigures("catch.rate > 0.1", None, {"catch.rate": "null"}, HOSTILE),
    ]
    return figures


@pytest.mark.parametrize("form", RENDERERS)
def test_no_format_passes_control_or_bidi_characters_of_a_trace(tmp_path: Path, form: str) -> None:
    report = RENDERERS[form](_figures(tmp_path))
    assert "\x1b" not in report
    assert "\u202e" not in report or form == "json"  # JSON holds what was there


# Text.


def test_text_shows_harm_first_shares_with_intervals_and_changes(tmp_path: Path) -> None:
    text = render_text(_figures(tmp_path))
    refused = text.split("refused (all later calls")[1].splitlines()
    assert "good" in refused[1]
    assert "(succeeded)" in refused[1]
    assert "harm    1 of 2 successful sessions had a call refused: 50.0% (95 % interval" in text
    assert "catch   1 of 1 failed sessions had a call refused: 100.0% (95 % interval" in text
    assert "sessions without a known outcome: 1 of 4: 25.0% (95 % interval" in text
    assert re.search(r"rules/no-secrets +block +1 +3 +3  #{15}\.{5} 75\.0%", text)
    assert "newly refused  3 sessions of 4 (1 succeeded, 1 failed): 75.0%" in text
    assert "newly allowed  0 sessions of 4; 0 calls" in text
    assert "errors matched by a signature: 0 of 1: 0.0%" in text
    assert "--fail-on harm.rate > 0.9: passed: harm.rate = 0.5" in text
    assert "FAILED: cannot be decided" in text
    assert all(len(line) < 400 for line in text.splitlines())


def test_colours_are_for_terminals_and_change_no_text(tmp_path: Path) -> None:
    figures = _figures(tmp_path)
    coloured, plain = render_text(figures, Style(coloured=True)), render_text(figures, PLAIN)
    assert "\x1b[31m" in coloured
    words = re.sub(r"\x1b\[\d+m", "", coloured)
    blocks = "[█▏▎▍▌▋▊▉#. ]+"
    assert re.sub(blocks, " ", words) == re.sub(blocks, " ", plain)


@pytest.mark.parametrize(
    ("share", "plain"),
    [(0.0, "." * 20), (0.001, "#" + "." * 19), (0.5, "#" * 10 + "." * 10), (1.0, "#" * 20)],
)
def test_a_bar_shows_its_share(share: float, plain: str) -> None:
    assert PLAIN.bar(share) == plain
    letters = re.sub(r"\x1b\[\d+m", "", Style(coloured=True).bar(share))
    assert len(letters) == 20
    assert letters.strip() == "" if share == 0 else letters[0] != " "


def test_a_partial_report_states_how_much_was_read(tmp_path: Path) -> None:
    figures = _figures(tmp_path)
    figures.partial, figures.traces.named_files = True, 9
    assert "PARTIAL: interrupted after 26 events in 1 of 9 files" in render_text(figures)
    assert "**Interrupted: this report is incomplete.**" in RENDERERS["markdown"](figures)
    assert "this report is incomplete" in RENDERERS["junit"](figures)


@pytest.mark.parametrize("form", RENDERERS)
def test_unmatched_labels_are_named_in_every_format(tmp_path: Path, form: str) -> None:
    figures = _figures(tmp_path)
    figures.labels = LabelFigures(matched=0, unmatched=2)
    report = RENDERERS[form](figures)
    assert ("none of the 2 labels matched a session" in report) or '"unmatched": 2' in report
    figures.labels = LabelFigures(matched=1, unmatched=2)
    report = RENDERERS[form](figures)
    assert ("2 of 3 labels matched no session" in report) or '"unmatched": 2' in report


def test_sessions_without_a_call_are_left_out_of_shares(tmp_path: Path) -> None:
    trace = write(tmp_path / "t.jsonl", *(lines(f"s{n}", [read("/a")] * n) for n in range(3)))
    replay = Replay(load(policy(tmp_path / "p.yaml", "")), observe=False, labels=None)
    replay.add(Reader().read(trace))
    figures = replay.finish()
    assert (figures.traces.sessions, figures.traces.without_calls) == (3, 1)
    text = render_text(figures)
    assert "3 sessions (1 without a call), 3 calls" in text
    assert "untouched: 2 of 2 sessions with a call" in text
    assert "3 sessions (1 without a call)" in RENDERERS["markdown"](figures)
    assert "3 (1 without a call)" in RENDERERS["html"](figures)


def test_skipped_places_are_a_count_unless_all_are_asked_for(tmp_path: Path) -> None:
    figures = _figures(tmp_path)
    figures.traces.skipped = 21
    figures.traces.skips = figures.traces.skips[:1] * 20
    place = "t.jsonl:27: "
    text = render_text(figures)
    assert "21 places skipped (--verbose names them)" in text
    assert place not in text
    text = render_text(figures, verbose=True)
    assert text.count(place) == 20
    assert "… and 1 more" in text


def test_a_replay_of_nothing_names_the_skipped_places(tmp_path: Path) -> None:
    replay = Replay(load(policy(tmp_path / "p.yaml", "")), observe=False, labels=None)
    replay.add(Reader().read(write(tmp_path / "t.jsonl", ["no event"])))
    assert "t.jsonl: " in render_text(replay.finish())


# At a terminal.


def test_the_result_comes_first_with_its_causes_and_last_beyond_a_screen(tmp_path: Path) -> None:
    text = render_text(_figures(tmp_path))
    lines_ = text.splitlines()
    result = (
        "result  This policy would have refused a call in 1 of 2 successful sessions: "
        "1 by rules/no-secrets. With 95 % confidence, between 9.5% and 90.5% of such runs would "
        "have a call refused."
    )
    refused = "refused a call in 3 of 4 sessions: 3 by rules/no-secrets"
    change = (
        "change  1 successful session newly refused, none newly allowed; the baseline would have "
        "refused a call in none"
    )
    assert lines_[2:5] == [result, change, refused]
    assert text.count(result) == text.count(refused) == 1
    length = len(lines_) + 3
    fits = render_text(_figures(tmp_path), Style(coloured=False, height=length + 1))
    assert fits == text
    longer = render_text(_figures(tmp_path), Style(coloured=False, height=length))
    assert longer.splitlines() == [*lines_, "", result, change, refused]


def test_a_replay_that_refuses_nothing_says_so_in_words(tmp_path: Path) -> None:
    figures = _figures(tmp_path)
    for of, text in ((1, "refused no call in 1 session"), (4, "no call in any of 4 sessions")):
        figures.refused = Share(0, of)
        assert f"{text}\n" in render_text(figures)


@pytest.mark.parametrize(
    ("labels", "reason"),
    [
        (LabelFigures(), "pass --labels to say which did."),
        (LabelFigures(matched=10), "10 labels matched; none says that its session succeeded."),
        (LabelFigures(matched=1, unmatched=2), "1 label matched; none says that its session"),
        (LabelFigures(unmatched=2), "none of the 2 labels matched a session; check"),
    ],
)
@pytest.mark.parametrize("form", ["text", "markdown", "html"])
def test_without_a_success_the_result_says_why(
    labels: LabelFigures, reason: str, form: str, tmp_path: Path
) -> None:
    figures = _figures(tmp_path)
    figures.harm, figures.labels = Harm(), labels
    assert f"No session is known to have succeeded: {reason}" in RENDERERS[form](figures)


def test_counts_of_labels_appear_once(tmp_path: Path) -> None:
    figures = _figures(tmp_path)
    figures.labels = LabelFigures(matched=3, unmatched=1, disagree=0)
    text = render_text(figures)
    assert "1 of 4 labels matched no session" in text
    assert "labels  " not in text
    figures.labels = LabelFigures(matched=3, unmatched=1, disagree=2)
    assert "labels  3 labels matched, 2 contradicted the recording" in render_text(figures)


def test_in_80_columns_each_entry_is_one_line(tmp_path: Path) -> None:
    figures = _figures(tmp_path)
    figures.rules = [
        msgspec.structs.replace(rule, id=f"limits/{'x' * 31}") for rule in figures.rules
    ]
    lines_ = render_text(figures, Style(coloured=False, width=80)).splitlines()
    rows = lines_[next(n for n, line in enumerate(lines_) if line.startswith("  by ")) :]
    assert rows[0].endswith("sessions share")
    for row in rows[1 : len(figures.rules) + 1]:
        assert row.endswith("%")


def test_causes_are_entries_that_refused_first_by_sessions() -> None:
    rules = [
        RuleFigures("limits/a", "block", first=1, first_succeeded=1),
        RuleFigures("limits/b", "block", first=2, first_succeeded=2),
        RuleFigures("limits/b", "advise", hits=50),
        RuleFigures("limits/b", "halt", first=2, first_succeeded=1),
        *(RuleFigures(f"rules/{name}", "block", first=1, first_succeeded=1) for name in "cdef"),
    ]
    harm = Harm(9, 8, 8 / 9, (0.5, 0.9), 0)
    assert assess_harm(harm, rules).text == (
        "This policy would have refused a call in 8 of 9 successful sessions: 3 by limits/b, "
        "1 by limits/a, 1 by rules/c, 1 by rules/d, 2 by others."
    )
    assert [rule.id for rule in sort_rules_by_harm(rules)][:2] == ["limits/b", "limits/a"]


def test_the_next_step_is_shown_only_for_harm(tmp_path: Path) -> None:
    figures = _figures(tmp_path)
    new = tmp_path / "new.yaml"
    assert next_step(figures) == (
        "see the refused calls with `--format html -o report.html`; then loosen "
        f"`rules/no-secrets` ({new}:5), or disable it"
    )
    figures.harm = Harm(2, 0, 0.0, (0.0, 0.7), 0)
    assert next_step(figures) is None


@pytest.mark.parametrize("width", [40, 80, 120])
def test_at_a_terminal_lines_fit_and_no_word_is_broken(tmp_path: Path, width: int) -> None:
    figures = _figures(tmp_path)
    fitted = re.sub(r"\x1b\[\d+m", "", render_text(figures, Style(coloured=True, width=width)))
    words = {word for line in render_text(figures).splitlines() for word in line.split()}
    for line in fitted.splitlines():
        assert len(line) <= width or len(line.split()) == 1, line
        if width >= 100:
            assert {word for word in line.split() if word.isalnum()} <= words


def test_wide_letters_count_as_two_columns() -> None:
    style = Style(coloured=False, width=10)
    assert style.join(["漢字 漢字 漢字"]) == "漢字 漢字\n  漢字"
    assert style.join(["harm    ab cd ef"]) == "harm    ab\n        cd\n        ef"
    assert style.join(["", "  a"]) == "\n  a"
    assert style.join(["AB cdef 95 % g"]) == "AB cdef\n  95 % g"


def test_every_entry_of_the_report_names_its_place_in_the_policy(tmp_path: Path) -> None:
    (rule,) = _figures(tmp_path).rules
    assert (Path(rule.file).name, rule.line) == ("new.yaml", 5)
    assert rule.source[0] == "no-secrets:"
    assert len(rule.source) > 1


def test_runs_warn_about_unreadable_items(tmp_path: Path) -> None:
    compiled = load(policy(tmp_path / "p.yaml", ""))
    with pytest.warns(UserWarning, match=re.escape(f"{tmp_path}: ")):
        assert list(runs(compiled, Reader().iter_files(tmp_path))) == []
    skipped: list[Skipped] = []
    assert list(runs(compiled, Reader().iter_files(tmp_path), on_skipped=skipped.append)) == []
    assert [item.file for item in skipped] == [str(tmp_path)]


# Markdown.


def test_markdown_escapes_everything_of_a_trace(tmp_path: Path) -> None:
    report = RENDERERS["markdown"](_figures(tmp_path))
    tags = set(re.findall(r"<[^>]*>", report))
    assert tags == {
        "<code>",
        "</code>",
        "<details>",
        "</details>",
        "<summary>",
        "</summary>",
        "<br>",
    }
    assert report.count("<details>") == report.count("</details>")
    for evil in ("@octocat", "`", "http://", "www.evil", "](", "![", "&lt;", "$x$", "~~", "<!--"):
        assert evil not in report, evil
    for row in (line for line in report.splitlines() if line.startswith("|")):
        assert row.count("|") in (5, 7)
    shown = unescape(re.sub(r"</?\w+>", "", report))
    assert "@octocat" in shown  # a reader sees what was there
    assert "<script>alert(1)</script>" in shown


def test_markdown_answers_a_reviewers_questions(tmp_path: Path) -> None:
    report = unescape(RENDERERS["markdown"](_figures(tmp_path)))
    head = report.split("<details>")[0]
    assert "**newly refused**: 3 sessions of 4 (1 succeeded, 1 failed): 75.0%" in head
    assert "passed: <code>harm.rate > 0.9</code>" in head
    assert "1 of 2: 50.0% (95 % interval" in head
    assert "in 1 of 2 successful sessions**: 1 by <code>rules/no-secrets</code>. With 95 %" in head
    assert "counterfactual" in report
    assert "sessions without a known outcome: 1 of 4" in report


def test_markdown_always_fits_a_comment(tmp_path: Path) -> None:
    names = [f"{n}{'<@>' * 200}" for n in range(60)]
    trace = write(
        tmp_path / "t.jsonl",
        *(lines(name, [read(f"/secret{'&' * 9000}")], success=True) for name in names),
    )
    replay = Replay(
        load(policy(tmp_path / "new.yaml", NO_SECRETS)),
        observe=False,
        labels=None,
        baseline=load(policy(tmp_path / "old.yaml", "")),
    )
    replay.add(Reader().read(trace))
    assert len(RENDERERS["markdown"](replay.finish())) < 65_536  # GitHub's limit


# JUnit.


def _parsed(figures: Figures) -> ET.Element:
    return ET.fromstring(RENDERERS["junit"](figures))  # noqa: S314 - our own output


def test_junit_has_a_suite_per_file_and_fails_for_refused_successful_runs(tmp_path: Path) -> None:
    root = _parsed(_figures(tmp_path))
    gates, suite = root
    assert [bool(case.findall("failure")) for case in gates] == [True, False, True]
    assert suite.get("name") == str(tmp_path / "t.jsonl")
    verdicts = {case.get("name", "")[:10]: [one.tag for one in case] for case in suite}
    assert verdicts == {
        "good �[2J<": ["failure"],
        "bad": ["system-out"],
        "fine": ["system-out"],
        "unlabelled": ["system-out"],
    }
    (failure,) = suite.findall("testcase/failure")
    assert failure.get("type") == "rules/no-secrets"
    assert "this run succeeded; call 2 (`read`): not /secret" in (failure.get("message") or "")
    assert (root.get("tests"), root.get("failures"), suite.get("failures")) == ("7", "3", "1")


def test_junit_skips_unknown_runs_and_names_unlisted_ones(tmp_path: Path) -> None:
    figures = _figures(tmp_path, keep=ReportSize(sessions=2))
    figures.sessions[0].refused, figures.sessions[0].unknown = 0, 1
    figures.sessions[0].first_refusal = None
    root = _parsed(figures)
    assert len(root.findall("testsuite/testcase/skipped")) == 1
    assert root.get("skipped") == "1"
    assert "2 sessions without a case" in (root.findtext("testsuite/system-out") or "")
