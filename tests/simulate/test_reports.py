"""The formats of the report, each a function of the figures."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from html import unescape
from pathlib import Path

import pytest

from policyguard.report.replay.figures import Figures, GateFigures, LabelFigures
from policyguard.report.replay.renderers import RENDERERS
from policyguard.report.replay.text import render_text
from policyguard.report.style import COLOURED, PLAIN
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
    assert "harm   1 of 2 successful sessions had a call refused: 50.0% (95 % interval" in text
    assert "catch  1 of 1 failed sessions had a call refused: 100.0% (95 % interval" in text
    assert "sessions without a known outcome: 1 of 4: 25.0% (95 % interval" in text
    assert re.search(r"rules/no-secrets +block +3 +3  #{15}\.{5} 75\.0%", text)
    assert "newly refused  3 sessions of 4 (1 succeeded, 1 failed): 75.0%" in text
    assert "newly allowed  0 sessions of 4; 0 calls" in text
    assert "errors matched by a signature: 0 of 1: 0.0%" in text
    assert "--fail-on harm.rate > 0.9: passed: harm.rate = 0.5" in text
    assert "FAILED: cannot be decided" in text
    assert all(len(line) < 400 for line in text.splitlines())


def test_colours_are_for_terminals_and_change_no_text(tmp_path: Path) -> None:
    figures = _figures(tmp_path)
    coloured, plain = render_text(figures, COLOURED), render_text(figures, PLAIN)
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
    letters = re.sub(r"\x1b\[\d+m", "", COLOURED.bar(share))
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


@pytest.mark.parametrize(("skipped", "note"), [(20, "all are in"), (21, "the first 20 are in")])
def test_skips_that_are_not_shown_are_in_the_json(tmp_path: Path, skipped: int, note: str) -> None:
    figures = _figures(tmp_path)
    figures.traces.skipped = skipped
    figures.traces.skips = figures.traces.skips[:1] * 20
    assert f"{skipped - 12} more ({note} --format json)" in render_text(figures)


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
        assert row.count("|") in (5, 6)
    shown = unescape(re.sub(r"</?\w+>", "", report))
    assert "@octocat" in shown  # a reader sees what was there
    assert "<script>alert(1)</script>" in shown


def test_markdown_answers_a_reviewers_questions(tmp_path: Path) -> None:
    report = unescape(RENDERERS["markdown"](_figures(tmp_path)))
    head = report.split("<details>")[0]
    assert "**newly refused**: 3 sessions of 4 (1 succeeded, 1 failed): 75.0%" in head
    assert "passed: <code>harm.rate > 0.9</code>" in head
    assert "1 of 2: 50.0% (95 % interval" in head
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
