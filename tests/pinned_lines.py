"""Lines that are written down in a file of `tests/cases`, in paragraphs with a title.

With `POLICYGUARD_PIN=1` they are written anew.
"""

from __future__ import annotations

import os
from functools import cached_property
from pathlib import Path


class PinnedLines:
    """The paragraphs of one file."""

    def __init__(self, name: str) -> None:
        self._file = Path(__file__).parent / "cases" / name

    @cached_property
    def _paragraphs(self) -> dict[str, list[str]]:
        if not self._file.exists():
            return {}
        paragraphs = self._file.read_text("utf-8").strip().split("\n\n")
        return {title: lines for title, *lines in (one.split("\n") for one in paragraphs)}

    def check(self, title: str, lines: list[str]) -> None:
        """Compare lines with those that were written down, or write them down."""
        if os.environ.get("POLICYGUARD_PIN"):
            self._paragraphs[title] = lines
            paragraphs = ("\n".join([key, *kept]) for key, kept in self._paragraphs.items())
            self._file.write_text("\n\n".join(paragraphs) + "\n", "utf-8")
        for line, was in zip(lines, self._paragraphs[title], strict=True):
            assert line == was
