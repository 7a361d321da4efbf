"""The problems of one source: positions, order, and suggestions."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from typing import Literal

from policyguard.cel.errors import Problem
from policyguard.cel.syntax.ast import TextSpan

_MAX_NAMES = 8
"""Fields to name where none is similar."""


class Problems:
    """Collects the problems of one source."""

    def __init__(self, source: str) -> None:
        self._line_starts = [0]
        position = source.find("\n")
        while position >= 0:
            self._line_starts.append(position + 1)
            position = source.find("\n", position + 1)
        self._found: list[tuple[TextSpan, Problem]] = []

    def report(
        self,
        code: str,
        message: str,
        span: TextSpan,
        help_: str | None = None,
        severity: Literal["error", "warning"] = "error",
    ) -> None:
        """Add a problem; an error makes the expression unusable."""
        line, column = self._position(span.start)
        end_line, end_column = self._position(span.end)
        problem = Problem(code, message, line, column, end_line, end_column, help_, severity)
        self._found.append((span, problem))

    def _position(self, offset: int) -> tuple[int, int]:
        line = bisect_right(self._line_starts, offset)
        return line, offset - self._line_starts[line - 1] + 1

    @property
    def all(self) -> tuple[Problem, ...]:
        """All problems in source order."""
        ordered = sorted(self._found, key=lambda found: (found[0].start, found[0].end))
        return tuple(problem for _, problem in ordered)

    @property
    def has_errors(self) -> bool:
        """Whether any problem is an error."""
        return any(problem.severity == "error" for _, problem in self._found)


def closest_match(word: str, candidates: Iterable[str]) -> str | None:
    """Return the candidate that `word` probably means, or None."""
    from difflib import get_close_matches  # 3 ms, only for policies with problems

    by_folded = {candidate.casefold(): candidate for candidate in sorted(candidates)}
    matches = get_close_matches(word.casefold(), by_folded, n=1)
    return by_folded[matches[0]] if matches else None


def did_you_mean(word: str, candidates: Iterable[str]) -> str | None:
    """Return help that names the closest candidate, or None."""
    match = closest_match(word, candidates)
    return f"did you mean `{match}`?" if match is not None else None


def suggest_name(name: str, names: Iterable[str]) -> str | None:
    """Return help that has the closest of the names, or all of a few; None if there are many."""
    known = sorted(filter(None, names))
    if (closest := did_you_mean(name, known)) or not 0 < len(known) <= _MAX_NAMES:
        return closest
    return f"known here: {', '.join(f'`{one}`' for one in known)}"
