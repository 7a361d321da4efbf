"""The files that a patch changes."""

from __future__ import annotations

import re
from collections.abc import Iterator

from policyguard.engines.lazy_pattern import lazy_pattern

BEGIN_PATCH = "*** Begin Patch"
"""The first line of the patches of Codex, which its shell takes as well."""

_FILE_LINE = lazy_pattern(
    r"^[ \t]*\*\*\* (?:(?:Add|Update|Delete) File|Move to): ?([^\n]+)"
    r"|^(?:---|\+\+\+|rename (?:from|to)|copy (?:from|to)) ([^\t\n]+)"
    r"|^diff --git ([^\n]+)",
    re.MULTILINE,
)
_SIDE = lazy_pattern(r"[abciow]/")
_SIDES = lazy_pattern(r"(.+) (.+)")
_NO_FILE = "/dev/null"


def find_patched_files(patch: str) -> Iterator[str]:
    """Yield the files that a patch adds, changes, removes or renames.

    Patches of Codex (`*** Update File: x`) and unified diffs are read; of the names in the latter
    also without the first folder (`a/x`), which most programs drop.
    """
    for match in _FILE_LINE.finditer(patch):
        if match[1]:
            yield match[1].strip()
            continue
        sides = _SIDES.fullmatch(match[3]) if match[3] else None
        for name in sides.groups() if sides else (match[2] or match[3],):
            path = name.strip().strip('"')
            if path and path != _NO_FILE:
                yield path
                if _SIDE.match(path):
                    yield path[2:]
