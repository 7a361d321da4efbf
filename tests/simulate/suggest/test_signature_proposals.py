"""Clusters of errors, and the signatures proposed for them."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from policyguard.compiler.build.outcome_matchers import (
    MAX_SCANNED_CHARS,
    ErrorNormalizer,
    SignatureMatcher,
)
from policyguard.engines.regex import Regex
from policyguard.lint import lint_paths
from policyguard.model.event import Completed
from policyguard.report.replay.figures import UnmatchedFigures
from policyguard.simulate import load
from policyguard.simulate.suggest.error_clusters import ErrorKind, cluster_errors, summary_line
from policyguard.simulate.suggest.override_layer import render_signatures_layer
from policyguard.simulate.suggest.session_results import SessionResult
from policyguard.simulate.suggest.signature_objections import ObjectionsFold
from policyguard.simulate.suggest.signature_proposals import build_pattern, propose_signatures
from policyguard.traces import TraceFile
from tests.examples import examples

CORE = load("core")
MASKED = ErrorNormalizer(CORE.fingerprinter).mask
UNSCANNED = f"{'x' * MAX_SCANNED_CHARS} quux glorped twice {'x' * MAX_SCANNED_CHARS}"
"""A signature is not searched for in the middle of a long result."""


def _session(*errors: str) -> SessionResult:
    found = tuple(UnmatchedFigures(error, 2, "tool", "s", "f") for error in errors)
    return SessionResult((0,), "s\nf", None, 9, False, False, frozenset(), found, 0)


def _proposed(*errors: str) -> list:
    return propose_signatures(CORE, [_session(*errors)], lambda patterns: [""] * len(patterns))[1]


def _clusters(*errors: str) -> list[list[str]]:
    kinds = [ErrorKind(UnmatchedFigures(one, 1, "t", "s", "f"), 1, {"s"}) for one in errors]
    return [one.lines for one in cluster_errors(kinds, MASKED, str)]


def test_errors_that_share_their_words_are_one_cluster() -> None:
    assert _clusters(
        "the flux of alpha is wrong here",
        "something else went amiss",
        "the flux of beta is wrong here",
    ) == [
        ["the flux of alpha is wrong here", "the flux of beta is wrong here"],
        ["something else went amiss"],
    ]


def test_signatures_of_the_same_words_have_ids_of_their_own() -> None:
    errors = [f"{first} quux glorped {number}" for first in ("é", "è", "ê") for number in range(3)]
    assert [one.id for one in _proposed(*errors)] == [
        "quux_glorped",
        "quux_glorped_2",
        "quux_glorped_3",
    ]


def test_the_ten_most_frequent_are_proposed() -> None:
    words = ["quux", "glorp", "fnord", "zork", "plugh", "xyzzy"]
    words += ["frotz", "blorb", "gnusto", "rezrov", "yomin", "ozmoo"]
    errors = tuple(
        UnmatchedFigures(f"{word} {word[::-1]} {word}{number}x", 20 - number, "t", "s", "f")
        for number, word in enumerate(words)
    )
    session = SessionResult((0,), "s\nf", None, 9, False, False, frozenset(), errors, 0)
    figures, proposals = propose_signatures(CORE, [session], lambda found: [""] * len(found))
    assert [one.hits for one in proposals] == list(range(20, 10, -1))
    assert [(one.why, one.errors) for one in figures.unproposed] == [
        ("less frequent than those proposed", 19)
    ]


def test_proposal_names_the_tool_with_most_of_the_errors() -> None:
    found = [("a", 2), ("b", 3), ("a", 2)]
    errors = tuple(
        UnmatchedFigures(f"quux glorped {number}", hits, tool, "s", "f")
        for number, (tool, hits) in enumerate(found)
    )
    session = SessionResult((0,), "s\nf", None, 9, False, False, frozenset(), errors, 0)
    (proposal,) = propose_signatures(CORE, [session], lambda patterns: [""] * len(patterns))[1]
    assert (proposal.tool, proposal.hits) == ("a", 7)


def test_errors_without_words_are_one_cluster() -> None:
    assert _clusters("404 17", "500 18") == [["404 17", "500 18"]]


def test_errors_that_only_begin_alike_are_no_cluster() -> None:
    assert len(_clusters("the flux of alpha is wrong", "the cat sat on my mat")) == 2
    assert len(_clusters("/a/b is gone for good", "/c is here to stay")) == 2


@pytest.mark.parametrize(
    ("error", "line"),
    [
        ("\n first \nsecond", "first"),
        ("Traceback (most recent call last):\n  File x\nQuuxError: nope", "QuuxError: nope"),
        ("", ""),
        ("cut of…", "cut of"),
        ("word " * 100, ("word " * 40).strip()),
    ],
)
def test_one_line_summarizes_an_error(error: str, line: str) -> None:
    assert summary_line(error) == line


@pytest.mark.parametrize(
    ("skeleton", "pattern"),
    [
        (("#", "quux", "of", "", "failed", "#"), r"\bquux of \S+ failed\b"),
        (("a.b(c)", "[x]", "is-not"), r"\ba\.b\(c\) \[x\] is-not\b"),
        (("x=#,", "wrong", "y:"), r"\bx=\S+, wrong y:"),
        (("\x1b[31m", "wrong", "way"), r"\bwrong way\b"),
    ],
)
def test_a_pattern_is_made_of_words_and_gaps(skeleton: tuple[str, ...], pattern: str) -> None:
    assert build_pattern(skeleton) == pattern


def test_errors_of_an_existing_signature_are_not_proposed() -> None:
    """`timeout` matches the summary line of the error, but not the full text."""
    assert _proposed("the quux command timed out there") == []


def test_errors_of_a_more_frequent_proposal_are_not_proposed() -> None:
    (proposal,) = _proposed("quux glorped twice", "today quux glorped twice again")
    assert proposal.examples == ["quux glorped twice"]


@pytest.mark.parametrize(
    ("result", "proposed"),
    [
        (Completed("s", call="c", ok=True, text="x\nquux glorped twice\ny"), False),
        (Completed("s", call="c", ok=None, text="quux glorped twice"), False),
        (Completed("s", call="c", ok=False, text="HTTP 429\nquux glorped twice"), False),
        (
            Completed(
                "s",
                call="c",
                ok=False,
                text="",
                error="429: rate limit exceeded: quux glorped twice",
            ),
            False,
        ),
        (Completed("s", call="c", ok=False, text="quux glorped twice"), True),
        (Completed("s", call="c", ok=None, exit_code=1, text="quux glorped twice"), True),
        (Completed("s", call="c", ok=True, text="quux glorped once"), True),
        (Completed("s", call="c", ok=True, text=UNSCANNED), True),
        (Completed("s", call="c", ok=True, text=f"{UNSCANNED} quux glorped twice"), False),
    ],
)
def test_proposals_match_no_success_and_no_known_error(result: Completed, proposed: bool) -> None:
    trace = TraceFile(Path("t"), "policyguard", iter([result]))

    def find_objections(patterns: list[str]) -> list[str]:
        fold = ObjectionsFold(patterns, SignatureMatcher(CORE.policy.signatures))
        fold.add(trace)
        return fold.stop().reasons()

    found = propose_signatures(CORE, [_session("quux glorped twice")], find_objections)[1]
    assert bool(found) is proposed


@pytest.mark.parametrize("error", ["", "0", "a b c d", "1 2 3", "####", "ab!cd"])
def test_unspecific_errors_are_not_proposed(error: str) -> None:
    assert _proposed(error) == []


@pytest.mark.parametrize(
    ("words", "is_proposed"),
    [
        ("quux glor", True),
        ("quux glo", False),
        ("quuxglorped", False),
        ("quu glo ped", True),
        ("quu glo", False),
    ],
)
def test_a_signature_needs_two_words_and_eight_letters(words: str, is_proposed: bool) -> None:
    assert bool(_proposed(f"{words} 1", f"{words} 2")) is is_proposed


PLAIN = st.sampled_from(["quux", "glorp", "wibble", "frobbed"])
# fmt: off
HOSTILE = st.sampled_from([
    "#", "'x'", '"', "\\", "{a: b}", "%s", "c:\\tmp", "12", "/a/b", "*", "(?i)", "$1", "- id",
    ": #", "é",
    "\x1b[2J", "\ud800", "&a", "!!python", "\u2028", "\x00", "\t", "|", "`x`", "true", "a|b",
])
# fmt: on
ERROR = st.lists(PLAIN | HOSTILE, min_size=3, max_size=9).map(" ".join)


@given(st.lists(ERROR, min_size=1, max_size=6))
@settings(deadline=None, max_examples=examples(50))
def test_hostile_errors_make_layers_that_load_and_lint_clean(errors: list[str]) -> None:
    proposals = _proposed(*errors)
    for proposal in proposals:
        assert all(map(Regex(proposal.pattern).search, proposal.examples))
    if proposals:
        with tempfile.TemporaryDirectory() as folder:
            file, base = Path(folder) / "s.yaml", Path(folder) / "base.yaml"
            base.write_text("policyguard: 1\nname: base\nlearn: {ban: call}\n")
            file.write_text(render_signatures_layer("x", ["./base.yaml"], proposals))
            assert lint_paths([file]).diagnostics == [], file.read_text()


@given(st.text(max_size=300))
@settings(deadline=None)
def test_any_text_at_all_can_be_an_error(error: str) -> None:
    for proposal in _proposed(error, f"{error} wibble wobble {error}"):
        assert Regex(proposal.pattern).search(proposal.examples[0])
