"""The findings that `policyguard lint` renders."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from policyguard.model.diagnostic import Diagnostic


class Findings(NamedTuple):
    """The sorted findings in the checked files (by display name).

    `ignored` are the ignored findings with their reasons. `pages` explain the codes. `broken` are
    the files that do not load, whether because of their own errors or of an inherited file's.
    """

    files: tuple[str, ...]
    diagnostics: tuple[Diagnostic, ...]
    ignored: tuple[tuple[Diagnostic, str], ...]
    pages: Mapping[str, str]
    broken: frozenset[str] = frozenset()
