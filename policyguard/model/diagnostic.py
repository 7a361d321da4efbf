"""Diagnostics: the problems of a policy as values, with their places.

A diagnostic's code is `phase/slug` (`yaml/duplicate-key`, `schema/unknown-key`). Its message is
lower case, one line, without a final period, with the author's text in backticks.
"""

# No `annotations` from `__future__`: msgspec would compile the text of each by itself.

from collections.abc import Iterable
from itertools import islice
from typing import Literal

import msgspec

from policyguard.model.errors import PolicyguardError

Severity = Literal["error", "warning", "info"]

_MAX_QUOTED_CHARS = 60
"""Characters of a policy's text that a message quotes."""
_MAX_CANDIDATES = 1000
"""Known words that a misspelling is compared with, each in about a microsecond."""


class Span(msgspec.Struct, frozen=True, order=True):
    """A range in a policy file.

    Lines and columns count from 1, columns in code points; the end is exclusive. `file` is the
    name to show: a path as it was given, or `pack:core/policy.yaml` for what ships inside.
    """

    file: str
    line: int
    column: int
    end_line: int
    end_column: int


class Edit(msgspec.Struct, frozen=True):
    """A change of a file: `text` replaces `span`."""

    span: Span
    text: str


class Diagnostic(msgspec.Struct, frozen=True, kw_only=True):
    """One problem. `lines` are the source lines that `span` covers.

    `help` says what to write instead, if that is known; `edits` write it, if it is certain. They
    are applied all together or not at all.
    """

    code: str
    severity: Severity
    message: str
    span: Span
    help: str | None = None
    lines: tuple[str, ...] = ()
    edits: tuple[Edit, ...] = ()


class PolicyError(PolicyguardError, ValueError):
    """A policy that cannot be used. `str()` of it is the whole report, plain text.

    `policyguard.report.findings.diagnostics.render_text` renders the report; `diagnostics` are the
    findings in it, warnings included.
    """

    def __init__(self, report: str, diagnostics: Iterable[Diagnostic]) -> None:
        self.report = report
        self.diagnostics = tuple(diagnostics)
        super().__init__(report, self.diagnostics)

    def __str__(self) -> str:
        return self.report


def quote_text(text: str) -> str:
    """Put a policy's text into backticks, on one line, truncated."""
    line = text.replace("\n", "\\n")
    return f"`{line if len(line) <= _MAX_QUOTED_CHARS else line[:_MAX_QUOTED_CHARS] + '…'}`"


def did_you_mean(word: str, known: Iterable[str]) -> str | None:
    """Return a help text with the known word that `word` most likely misspells, if any."""
    from difflib import get_close_matches  # 3 ms, which a correct policy need not pay

    names = {name.casefold(): name for name in islice(known, _MAX_CANDIDATES)}
    folded = word.casefold()
    close = get_close_matches(folded, names, n=3, cutoff=0.65)
    # Swapped letters are the most likely mistake.
    swapped = [name for name in close if sorted(name) == sorted(folded)]
    best = (swapped or close)[:1]
    return f"did you mean `{names[best[0]]}`?" if best else None
