"""Errors taken out of the words in which a framework passes them on; the states of results."""

from __future__ import annotations

import pytest

from policyguard import Guard
from policyguard.compiler.build.outcome_matchers import EnvelopeMatcher, ErrorUnwrapper
from policyguard.model.policy import Envelope

UNWRAPPER = ErrorUnwrapper((r"^Error: (.*)!$", r"^Error: Tool\((.*)\)", r"^Error: (.+)$"))


@pytest.mark.parametrize(
    ("error", "inner"),
    [
        ("Error: no such file!", "no such file"),
        ("Error: Tool(broke) at once", "broke"),
        ("Error: else", "else"),
        ("Error: !", "!"),  # the first pattern finds nothing, the last does
        ("no such file", "no such file"),
        ("", ""),
    ],
)
def test_the_first_pattern_that_finds_something_gives_the_error(error: str, inner: str) -> None:
    assert UNWRAPPER.unwrap(error) == inner


@pytest.mark.parametrize(
    "wrapped",
    [
        "Error: FileNotFoundError('{}')\n Please fix your mistakes.",
        "Error: FileNotFoundError - {}",
        "Error executing tool read_file with arguments {{'path': 'a'}}: {}",
        "Error executing tool read_file: {}",
    ],
)
def test_core_knows_the_words_of_frameworks(wrapped: str) -> None:
    error = "[Errno 2] No such file or directory: a"
    with Guard.load("core").session("s") as session:
        bare = session.record(session.check("read_file", {"path": "a"}), error=error)
        same = session.record(
            session.check("read_file", {"path": "b"}), error=wrapped.format(error)
        )
    assert same.outcome.error_fingerprint == bare.outcome.error_fingerprint
    assert same.outcome.signature == bare.outcome.signature == "file_not_found"


@pytest.mark.parametrize(
    ("pattern", "text", "rest"),
    [
        ("^FAILED", "FAILED: no such file", "no such file"),
        ("^FAILED", "FAILED", ""),
        ("^no such file", "no such file", "no such file"),  # all of it
        (".", "no such file", "no such file"),  # it marks nothing
        ("", "no such file", "no such file"),
    ],
)
def test_the_marker_of_a_state_is_no_part_of_the_error(pattern: str, text: str, rest: str) -> None:
    matcher = EnvelopeMatcher((Envelope(state="failure", pattern=pattern),))
    assert matcher.match(text) == ("failure", rest)
