"""The checker's problems and their positions. The cases are in `problems.txt`: add more there.

A case is an expression, on one line or more, and below it a line for each problem: carets (tildes
for a warning) under the code points that it points at, then the code, the message, and after a bar
the help. An expression without such lines has no problem.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from policyguard import cel
from tests.cel.sample_declarations import SAMPLE_DECLARATIONS

CASES = Path(__file__).with_name("problems.txt")
MARKERS = re.compile(r"( *)([\^~]+) (\S.*)")


def cases() -> list[tuple[str, str]]:
    """Return pairs of an expression and its expected report."""
    text = "\n".join(
        line for line in CASES.read_text("utf-8").splitlines() if not line.startswith("#")
    )
    result = []
    for block in re.split(r"\n\n+", text.strip("\n")):
        lines = block.split("\n")
        source = [line for line in lines if not MARKERS.fullmatch(line)]
        result.append(("\n".join(source), block))
    return result


def problems(source: str) -> tuple[cel.Problem, ...]:
    try:
        return cel.compile(source, SAMPLE_DECLARATIONS, expect=cel.BOOL).warnings
    except cel.CelError as error:
        return error.problems


def report(source: str) -> str:
    """Format the case as in the file: each line of `source`, with its problems below."""
    found = problems(source)
    lines = []
    for number, line in enumerate(source.split("\n"), start=1):
        lines.append(line)
        for problem in (problem for problem in found if problem.line == number):
            same_line = problem.end_line == number
            end = problem.end_column if same_line else len(line) + 1
            sign = "^" if problem.severity == "error" else "~"
            marks = " " * (problem.column - 1) + sign * max(1, end - problem.column)
            help_ = f" | {problem.help}" if problem.help else ""
            lines.append(f"{marks} {problem.code}: {problem.message}{help_}")
    return "\n".join(lines)


@pytest.mark.parametrize(("source", "expected"), cases(), ids=[source for source, _ in cases()])
def test_reported_problems(source: str, expected: str) -> None:
    assert report(source) == expected


def test_messages_follow_the_style() -> None:
    for source, _ in cases():
        for problem in problems(source):
            text = problem.message
            assert "\n" not in text
            assert not text.endswith(".")
            assert text[0] == text[0].lower() or text.startswith("RE2")
            assert re.fullmatch(r"[a-z-]+", problem.code)


def test_every_code_has_a_case() -> None:
    package = Path(cel.__file__).parent
    text = "".join(path.read_text("utf-8") for path in package.rglob("*.py"))
    raised = set(re.findall(r"(?:error|warning|report|reject)\(\s*\"([a-z-]+)\"", text))
    covered = {problem.code for source, _ in cases() for problem in problems(source)}
    tested_elsewhere = {
        "missing-library",
        "too-long",
        "too-deep",
        "wrong-type",
    }  # in test_queries.py, test_cost_limits.py and test_program.py
    assert raised - tested_elsewhere <= covered
