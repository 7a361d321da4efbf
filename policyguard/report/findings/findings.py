"""What linting came to: what `policyguard lint` shows in each of its formats."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from policyguard.model.diagnostic import Diagnostic


class Findings(NamedTuple):
    """All findings by file and place, over the files that were checked (as reports show them).

    `ignored` are those that a comment keeps from being reported, each with the comment's reason.
    `pages` explain the codes. `broken` are the files that do not load; what is wrong may stand in
    another file.
    """

    files: tuple[str, ...]
    diagnostics: tuple[Diagnostic, ...]
    ignored: tuple[tuple[Diagnostic, str], ...]
    pages: Mapping[str, str]
    broken: frozenset[str] = frozenset()
