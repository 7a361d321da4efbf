"""The HTML report: what it says, and that no text of a recording becomes markup."""

from __future__ import annotations

import base64
import hashlib
import re
from pathlib import Path
from typing import Any

import msgspec
import pytest
from click.testing import CliRunner, Result
from hypothesis import given, settings
from hypothesis import strategies as st

from policyguard.cli import main
from policyguard.report.replay.assessment import assess_harm
from policyguard.report.replay.figures import (
    CallFigures,
    Catch,
    EvalErrorFigures,
    Figures,
    Harm,
    LabelFigures,
    PolicyFigures,
    RuleFigures,
    RunFigures,
    Share,
    UnmatchedFigures,
)
from policyguard.report.replay.html import render_html
from policyguard.report.replay.html.element import document, element
from policyguard.simulate import ReportSize
from tests.examples import examples
from tests.report.sample import HOSTILE, LONG, figures

html5lib = pytest.importorskip("html5lib", reason="html5lib, a strict parser, is not installed")

DEMO = Path(__file__).parents[2] / "docs" / "demo"
FOREIGN = {
    *("args", "baseline_rule", "call", "digest", "error", "expression", "file", "first_message"),
    *("first_rule", "first_tool", "id", "message", "name", "reason", "result", "rule", "session"),
    *("signature", "source", "tool"),
}
"""Fields whose text comes out of a recording or a policy."""


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Figures:
    return figures(tmp_path_factory.mktemp("plain"))


def _parsed(page: str) -> Any:
    """The page as a tree. Raises where it is no valid HTML."""
    parser = html5lib.HTMLParser(strict=True, namespaceHTMLElements=False)
    return parser.parse(page)


def _text(node: Any) -> str:
    for cell in node.iter():
        if cell.tag in {"td", "th", "dt", "dd"}:
            cell.tail = " "
    return re.sub(r"\s+", " ", "".join(node.itertext())).strip()


def _part(page: str, id_: str) -> str:
    return _text(_parsed(page).find(f".//*[@id='{id_}']"))


# What it says.


@pytest.mark.parametrize(
    ("harm", "kind", "says"),
    [
        (Harm(), "unknown", ["is unknown", "No session is known to have succeeded"]),
        (Harm(5, 0, None, None, 5), "unknown", ["is unknown", "The recording lacks the data"]),
        (
            Harm(91, 0, 0.0, (0.0, 0.0405)),
            "spared",
            ["refused a call in none of 91 successful sessions.", "at most 4.0% of such runs"],
        ),
        (
            Harm(45, 3, 0.075, (0.026, 0.199), 5),
            "hit",
            ["in 3 of 40 successful sessions. 5 more are undetermined", "between 2.6% and 19.9%"],
        ),
    ],
)
def test_the_first_sentences_state_harm_and_confidence(
    harm: Harm, kind: str, says: list[str]
) -> None:
    assessment = assess_harm(harm, [])
    assert assessment.kind == kind
    for words in says:
        assert words in f"{assessment.text} {assessment.confidence}"
    page = render_html(Figures(PolicyFigures("p", "d" * 64, "enforce"), harm=harm))
    assert _part(page, "summary").startswith(f"Summary {assessment.text}")


def test_shares_come_with_their_intervals_now_and_before(plain: Figures) -> None:
    summary = _part(render_html(plain), "summary")
    assert "Harm 66.7% 2 of 3 successful sessions with a refused call" in summary
    assert "95 % interval 20.8% to 93.9% Before: 66.7% (95 % interval 20.8% to 93.9%)" in summary
    assert "Catch 100.0% 2 of 2 failed sessions" in summary
    assert "81 calls came after the first refusal" in summary
    assert "allow 167 advise 1 ask 2 block 2 halt 3" in summary
    assert "sessions without a known outcome: 1 of 6: 16.7%" in summary
    assert "failed --fail-on catch.rate > 0.1 cannot be decided: no such key plain" in summary
    assert "passed --fail-on harm.rate > 0.9 with harm.rate = 0.5" in summary


def test_a_share_names_the_number_of_undetermined_runs(plain: Figures) -> None:
    changed = msgspec.structs.replace(plain, undecided=Share(9, 20))
    changed.harm, changed.catch = (
        Harm(9, 1, 0.5, (0.1, 0.9), 7),
        Catch(10, 0, 0.0, (0.0, 0.6), unknown=8),
    )
    summary = _part(render_html(changed), "summary")
    for more, of in ((7, "1 of 2 succ"), (8, "0 of 2 failed"), (9, "5 of 6 sessions")):
        assert re.search(rf"{of}[^0-9]*{more} more undetermined", summary)
    assert "came after the first refusal" not in summary


def test_entries_are_listed_with_their_earlier_hits_even_if_they_no_longer_fire(
    plain: Figures,
) -> None:
    rows = _parsed(render_html(plain)).findall(".//*[@id='rules']//tbody/tr")
    changed = {_text(row[0]): [_text(cell) for cell in row[1:]] for row in rows}
    assert changed["rules/no-secrets"] == [
        *("1", "block", "2", "0", "2", "1", "1", "2"),
        "33.3% 9.7% to 70.0%",
    ]
    assert changed["rules/no-sending"] == ["0", "block", "0", "2", "0", "0", "0", "0", "0.0%"]
    assert plain.baseline is not None
    was = [RuleFigures("rules/no-secrets", "block", 17, 3), RuleFigures("rules/stop", "ask", 5, 4)]
    baseline = msgspec.structs.replace(plain.baseline, rules=was)
    rules = _part(render_html(msgspec.structs.replace(plain, baseline=baseline)), "rules")
    assert "rules/no-secrets 1 block 2 17 2" in rules
    assert "rules/stop 0 halt 2 0 2" in rules
    assert "rules/stop 0 ask 0 5 0" in rules


def test_the_headline_names_the_causes_and_links_each_to_its_place_in_the_policy(
    plain: Figures,
) -> None:
    page = _parsed(render_html(plain))
    headline = page.find(".//*[@class='sentence']")
    assert _text(headline) == (
        "This policy would have refused a call in 2 of 3 successful sessions: "
        "1 by rules/ask-first, 1 by rules/no-secrets."
    )
    places = {_text(link): link.get("href") for link in page.findall(".//a")}
    for link in headline.findall("./a"):
        source = page.find(f".//*[@id='{places[_text(link)][1:]}']")
        name = _text(link).removeprefix("rules/")
        assert _text(source).startswith(f"{name}:")
    for kind in ("sessions", "timelines", "compared"):
        assert page.find(f".//*[@id='{kind}']//a[@href='{places['rules/no-secrets']}']") is not None
    assert re.search(r"rules/no-secrets \S*new\.yaml:5", _part(render_html(plain), "rules"))


def test_entries_are_sorted_by_harm(plain: Figures) -> None:
    rows = _parsed(render_html(plain)).findall(".//*[@id='rules']//tbody/tr")
    harmed = [int(_text(row[1])) for row in rows]
    assert harmed == sorted(harmed, reverse=True)
    assert harmed[0] == 1


def test_results_are_shown_and_an_empty_one_is_named() -> None:
    calls = [
        CallFigures(0, "a", "ls", "allow", "ok", result="a.txt"),
        CallFigures(1, "b", "ls", "allow", "ok", result=" \n"),
        CallFigures(2, "c", "ls", "allow", "ok"),
        CallFigures(3, "d", "ls", "allow", "unknown", result="b.txt"),
    ]
    run = RunFigures("s", "f", "own", calls=4, timeline=calls)
    page = render_html(Figures(PolicyFigures("p", "d" * 64, "enforce"), sessions=[run]))
    session = _part(page, "session-1")
    assert "1 allow ls arguments not recorded result a.txt" in session
    assert "2 allow ls arguments not recorded result empty" in session
    assert "3 allow ls recorded: ran" in session
    assert "4 allow ls recorded: ran, status unknown arguments not recorded result b.txt" in session


def test_an_entry_that_only_observes_and_an_expression_that_failed_are_named(
    plain: Figures,
) -> None:
    changed = msgspec.structs.replace(plain, rules=[RuleFigures("r", "block", 1, observed=True)])
    changed.eval_errors = [EvalErrorFigures("f", "no such key", 3)]
    rules = _part(render_html(changed), "rules")
    assert "r (observed: refuses nothing)" in rules
    assert "f: 3 times: no such key" in rules


def test_sessions_that_succeeded_are_apart_from_those_that_failed(plain: Figures) -> None:
    sessions = _parsed(render_html(plain)).find(".//*[@id='sessions']")
    changed = {
        table.get("aria-label"): [_text(row[0]) for row in table.findall("./tbody/tr")]
        for table in sessions.findall(".//table")
    }
    assert changed == {
        "Refused although they succeeded: 2 sessions": [
            "harmed plain in runs.jsonl",
            "released in runs.jsonl",
        ],
        "Refused and failed, or of unknown outcome: 3 sessions": [
            "caught in runs.jsonl",
            "long in runs.jsonl",
            "unlabelled in runs.jsonl",
        ],
        "No call refused: 1 session": ["fine in runs.jsonl"],
    }


def test_a_timeline_divides_what_is_certain_from_what_is_counterfactual(plain: Figures) -> None:
    page = _parsed(render_html(plain))
    runs = {run.id: run for run in plain.sessions}
    seen = 0
    for details in page.findall(".//*[@class='timeline']"):
        run = runs[_text(details.find(".//h3/bdi")).split(" in ")[0]]
        lists = details.findall(".//ol")
        shown = [
            ("counterfactual" in (list_.get("class") or ""), int(_text(index)) - 1)
            for list_ in lists
            for index in list_.findall("./li//*[@class='index']")
        ]
        assert shown == [(call.counterfactual, call.index) for call in run.timeline]
        marks = details.findall(".//*[@class='strip']/span")
        assert ["counterfactual" in mark.get("class") for mark in marks] == [
            call.counterfactual for call in run.timeline
        ]
        assert _text(details).count("Counterfactual from here") == any(one for one, _ in shown)
        seen += 1
    assert seen == len(plain.sessions) == 6
    harmed = _text(page.find(".//*[@id='session-1']"))
    assert '3 block read +0:02 {"path":"/secret plain"} result x rules/no-secrets: not ' in harmed
    assert "rules/no-secrets: not /secret plain baseline: allow Counterfactual" in harmed


def test_a_long_session_counts_the_calls_left_out(plain: Figures) -> None:
    long = _part(render_html(plain), "session-3")
    assert "… 50 calls left out" in long
    assert "… 51 more calls" in long


def test_left_out_items_are_counted(tmp_path: Path) -> None:
    page = render_html(figures(tmp_path, keep=ReportSize(sessions=2, timelines=1)))
    assert "Listed here: 2 of 6 sessions" in _part(page, "sessions")
    assert "4 sessions more: --sessions lists more; all are counted" in _part(page, "sessions")
    assert "The calls of 1 of 6 sessions (--timelines for more)" in _part(page, "timelines")


def test_errors_that_no_signature_knows_come_with_tool_and_place(plain: Figures) -> None:
    coverage = _part(render_html(plain), "coverage")
    assert "Matched by a signature: 0 of 2: 0.0% (95 % interval" in coverage
    assert "no such file or directory: /x 1 50.0% run caught in runs.jsonl" in coverage
    changed = msgspec.structs.replace(plain)
    changed.signatures = msgspec.structs.replace(
        plain.signatures,
        matched=Share(1, 40, 0.025, (0.0, 0.1)),
        redacted=7,
        kinds=30,
        unmatched=[UnmatchedFigures(" ", 30, "t", "s", "f")],
    )
    coverage = _part(render_html(changed), "coverage")
    assert "7 more errors without text" in coverage
    assert "an empty text 30 75.0%" in coverage
    assert "29 kinds more" in coverage


def test_a_change_shows_both_directions_and_examples(plain: Figures) -> None:
    compared = _part(render_html(plain), "compared")
    assert "Newly refused 3 sessions of 6 (0 succeeded, 2 failed): 50.0%" in compared
    assert "harmed plain in runs.jsonl succeeded, call 3: allow → block" in compared
    assert "Newly allowed 0 sessions of 6; 0 calls" in compared


def test_without_a_baseline_nothing_is_compared(tmp_path: Path) -> None:
    page = render_html(figures(tmp_path, compared=False))
    assert 'id="compared"' not in page
    assert "Before:" not in page
    assert "baseline:" not in page


def test_redacted_and_skipped_parts_are_reported(plain: Figures) -> None:
    changed = msgspec.structs.replace(plain, partial=True)
    call = CallFigures(0, "c", "bash", "unknown", "failed (inferred)", at=2**62, error="e")
    run = RunFigures("s", "f", "own", calls=3, unknown=1, timeline=[call])
    far = msgspec.structs.replace(call, at=2**80)
    changed.sessions = [run, msgspec.structs.replace(run, id="t", timeline=[far])]
    page = render_html(changed)
    assert "Interrupted: this report is incomplete." in _part(page, "summary")
    assert "Undetermined: 2 sessions" in _part(page, "sessions")
    session = _part(page, "session-1")
    assert "unknown bash +0:00 recorded: failed (inferred from its text)" in session
    assert "arguments not recorded" in session
    assert "error e (no signature)" in session
    assert "ns since 1970" in _part(page, "session-2")  # no calendar goes that far


def test_what_was_read_is_counted_and_what_was_skipped_is_named(plain: Figures) -> None:
    read = _part(render_html(plain), "read")
    assert "Files 1 Formats policyguard 1 Sessions 6 Calls 175 Events 368" in read
    assert "Failed results 2 recorded as such, 0 inferred from text" in read
    assert "Skipped places: 1" in read
    assert "runs.jsonl:369 JSON is malformed" in read
    traces = msgspec.structs.replace(plain.traces, files=40, named_files=2, skipped=140)
    labels = LabelFigures(3, 2, 1)
    read = _part(render_html(msgspec.structs.replace(plain, traces=traces, labels=labels)), "read")
    assert "Files 40 (in 2 named)" in read
    assert "Labels 3 matched, 2 matched no session, 1 contradicted the recording" in read
    assert "139 skipped places more: only the first are listed" in read


def test_a_replay_of_nothing_makes_a_page(plain: Figures) -> None:
    page = render_html(Figures(PolicyFigures("p", "d" * 64, "observe")))
    assert "No entry of the policy fired" in _part(page, "rules")
    assert "results of refused calls are kept" in _text(_parsed(page))


# What it is made of.


def test_it_is_valid_html_with_headings_in_order(plain: Figures) -> None:
    tree = _parsed(render_html(plain))
    assert tree.get("lang") == "en"
    assert [len(tree.findall(f".//{name}")) for name in ("h1", "main", "nav", "header")] == [1] * 4
    level = 0
    for node in tree.iter():
        if isinstance(node.tag, str) and re.fullmatch("h[1-6]", node.tag):
            assert int(node.tag[1]) <= level + 1, _text(node)
            level = int(node.tag[1])
    for row in tree.findall(".//tbody/tr"):
        assert row[0].tag == "th"
        assert row[0].get("scope") == "row"
    assert all(head.get("scope") == "col" for head in tree.findall(".//thead//th"))


def test_it_refers_to_nothing_outside_and_allows_only_its_own_stylesheet(plain: Figures) -> None:
    tree = _parsed(render_html(plain))
    ids = {node.get("id") for node in tree.iter() if node.get("id")}
    for node in tree.iter():
        assert node.tag not in {"script", "link", "img", "iframe", "object", "form", "base"}
        for name, value in node.attrib.items():
            assert not str(name).startswith("on")
            assert name not in {"style", "src", "srcset", "action"}
            if str(name).endswith("href"):
                assert value[0] == "#"
                assert value[1:] in ids
    (style,) = tree.findall(".//style")
    assert not re.search(r"url\(|@import|@font-face", style.text)
    digest = base64.b64encode(hashlib.sha256(style.text.encode()).digest()).decode()
    (rules,) = tree.findall(".//meta[@http-equiv='Content-Security-Policy']")
    assert rules.get("content") == (
        f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'"
    )


def test_the_same_figures_give_the_same_page(plain: Figures) -> None:
    assert render_html(plain) == render_html(plain)


def test_texts_and_elements_keep_their_order() -> None:
    made = element("p", "a", None, "b", element("b", "c"), "d", None, "e", title="t", lang=None)
    assert document(made) == '<!DOCTYPE html>\n<p title="t">ab<b>c</b>de</p>\n'


# Hostile text.


@settings(deadline=None, max_examples=examples(25))
@given(evil=st.one_of(st.just(HOSTILE), st.text(), st.text("<>&\"'/=- abc!\\\x00\ud800\u202e")))
def test_no_text_changes_what_the_page_is_made_of(plain: Figures, evil: str) -> None:
    short = msgspec.structs.replace(plain, sessions=plain.sessions[:2])
    page = render_html(_spoiled(short, evil))
    page.encode()
    assert _shape(page) == _shape(render_html(short))


def test_hostile_text_is_shown_as_it_is(tmp_path: Path) -> None:
    page = render_html(figures(tmp_path, hostile=HOSTILE))
    text = _text(_parsed(page).find("body"))
    assert "<script>document.title='owned'</script>" in text
    assert '<img src=x onerror="document.title=' in text
    for control in ("\x1b", "\x00", "\u202e", "\u2066", "\u0085"):
        assert control not in page


def test_the_page_does_not_grow_with_the_texts_in_a_recording(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    usual = render_html(figures(tmp_path / "a"))
    page = render_html(figures(tmp_path / "b", hostile=LONG))
    assert "x" * 500 not in page
    assert len(page) < len(usual) + 10_000


def _spoiled(changed: Figures, evil: str) -> Figures:
    """The same with `evil` behind every text that is not ours."""

    def spoil(value: Any, key: str = "") -> Any:
        if isinstance(value, dict):
            return {name: spoil(item, name) for name, item in value.items()}
        if isinstance(value, list):
            return [spoil(item, key) for item in value]
        return value + evil if isinstance(value, str) and key in FOREIGN else value

    return msgspec.convert(spoil(msgspec.to_builtins(changed)), Figures)


def _shape(page: str) -> list[tuple[str, dict[str, str]]]:
    return [(str(node.tag), dict(node.attrib)) for node in _parsed(page).iter()]


# As a person would ask for it.


def _run(*args: str | Path) -> Result:
    return CliRunner().invoke(main, ["simulate", *map(str, args)], catch_exceptions=False)


def _undated(page: str) -> str:
    return re.sub(r"<p[^>]*>Made .*</p>", "", page)


def test_the_report_goes_into_a_file(tmp_path: Path) -> None:
    file = tmp_path / "report.html"
    trace = DEMO / "trace.jsonl"
    result = _run(trace, "--policy", "core", "--format", "html", "--output", file)
    assert (result.exit_code, result.stdout) == (0, "")
    page = file.read_text(encoding="utf-8")
    assert _undated(page) == _undated(_run(trace, "--policy", "core", "--format", "html").stdout)
    assert re.search(
        r"Made 20\d\d-\d\d-\d\d \d\d:\d\d:\d\d UTC in \d+\.\d s\.", _text(_parsed(page))
    )
    assert "forgetful-reader" in _part(page, "sessions")
    assert [one.name for one in tmp_path.iterdir()] == ["report.html"]


def test_a_place_where_no_report_can_go_is_named_before_anything_is_read(tmp_path: Path) -> None:
    trace = tmp_path / "t.jsonl"
    trace.write_bytes((DEMO / "trace.jsonl").read_bytes())
    before = trace.read_bytes()
    result = _run(trace, "--policy", "core", "-o", trace)
    assert result.exit_code == 2
    assert "is also an input" in result.stderr
    assert trace.read_bytes() == before
    result = _run(trace, "--policy", "core", "-o", tmp_path / "missing" / "r.html")
    assert result.exit_code == 2
    assert "cannot be written: folder" in result.stderr
