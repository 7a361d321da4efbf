"""What `verify` finds, and what opening a journal has to report: each kind once, as a value."""

from __future__ import annotations

from pathlib import Path

import msgspec

from policyguard.model.diagnostic import Severity


class VerifyFinding(msgspec.Struct, frozen=True, kw_only=True):
    """One finding. `line` counts from 1; None speaks of the whole file. `help`: what to do."""

    code: str
    severity: Severity
    message: str
    file: str
    line: int | None
    help: str


_INVESTIGATE = (
    "compare with a backup or an exported anchor; take what follows as told by whoever did it"
)
_KINDS: dict[str, tuple[Severity, str]] = {
    "journal/edited": ("error", _INVESTIGATE),
    "journal/dropped": ("error", _INVESTIGATE),
    "journal/inserted": ("error", _INVESTIGATE),
    "journal/reordered": ("error", _INVESTIGATE),
    "journal/rewritten": ("error", _INVESTIGATE),
    "journal/foreign-chain": (
        "error",
        "put the session's own file back; where it was pruned and the session's id used again, "
        "keep the anchors of the time before in a file of their own",
    ),
    "journal/cut-tail": (
        "error",
        "look for who cut it; after a power loss lines that were not on disk yet are gone too "
        "(`durability: fsync` keeps them)",
    ),
    "journal/missing-file": ("error", "bring it back from a backup, or look for who took it away"),
    "journal/unreadable": ("error", "see that it is a file that you may read"),
    "journal/no-chain": ("error", "verify journals; a trace without chain proves nothing"),
    "journal/key": ("error", "verify with the key that it was written with"),
    "journal/no-key": (
        "error",
        "a journal that was written with the key has its mark: look for it",
    ),
    "journal/torn-line": (
        "info",
        "nothing, where the store was given: it was not anchored, and is cut off when the session "
        "is next opened",
    ),
    "journal/unanchored": ("info", "nothing: what stands beyond an anchor could be cut unseen"),
    "journal/no-anchor": ("info", "give the store or an exported anchor, to find a cut tail"),
    "journal/dropped-anchors": (
        "error",
        "raise `bounds.journals`, or let journals go by age (`journal.keep_for`); an export of "
        "before (--anchor) still speaks of them",
    ),
    "journal/empty": ("info", "nothing: a process died before its first line"),
}

CODES = tuple(_KINDS)
"""All codes that a finding may have."""

UNPROVEN = (
    "journal/unreadable",
    "journal/no-chain",
    "journal/key",
    "journal/no-key",
    "journal/dropped-anchors",
)
"""Of these, what is said of files that were not followed, or have no anchor any more: nobody knows
whether they were altered."""


def make_finding(code: str, file: Path, message: str, line: int | None = None) -> VerifyFinding:
    """A finding of a known kind."""
    severity, remedy = _KINDS[code]
    return VerifyFinding(
        code=code, severity=severity, message=message, file=str(file), line=line, help=remedy
    )
