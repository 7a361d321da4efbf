"""The findings of `verify` and of opening a journal."""

from __future__ import annotations

from pathlib import Path

import msgspec

from policyguard.model.diagnostic import Severity


class VerifyFinding(msgspec.Struct, frozen=True, kw_only=True):
    """One finding. `line` counts from 1; None means the whole file. `help` says what to do."""

    code: str
    severity: Severity
    message: str
    file: str
    line: int | None
    help: str


_INVESTIGATE = "compare with a backup or exported anchor; distrust later lines"
_KINDS: dict[str, tuple[Severity, str]] = {
    "journal/edited": ("error", _INVESTIGATE),
    "journal/dropped": ("error", _INVESTIGATE),
    "journal/inserted": ("error", _INVESTIGATE),
    "journal/reordered": ("error", _INVESTIGATE),
    "journal/rewritten": ("error", _INVESTIGATE),
    "journal/foreign-chain": (
        "error",
        "restore the session's own file; if it was pruned and its session id used again, keep the "
        "earlier anchors in a separate file",
    ),
    "journal/cut-tail": (
        "error",
        "find out who cut it; power loss also destroys lines that were not on disk yet "
        "(`durability: fsync` prevents that)",
    ),
    "journal/missing-file": ("error", "restore a backup, or find out who took it"),
    "journal/unreadable": ("error", "check that it is a file that you can read"),
    "journal/no-chain": ("error", "verify journals; a trace without a chain proves nothing"),
    "journal/key": ("error", "verify with the key that it was written with"),
    "journal/no-key": ("error", "look for the original, whose first line has a `key_id`"),
    "journal/torn-line": (
        "info",
        "nothing, if you passed the store: the line was not anchored, and opening the session cuts "
        "it off",
    ),
    "journal/unanchored": ("info", "nothing, but lines beyond an anchor can be cut unnoticed"),
    "journal/no-anchor": ("info", "pass the store or an exported anchor, to detect a cut tail"),
    "journal/dropped-anchors": (
        "error",
        "raise `bounds.journals`, or let journals expire (`journal.keep_for`); an earlier export "
        "(--anchor) still covers them",
    ),
    "journal/empty": ("info", "nothing: a process died before its first line"),
}

CODES = tuple(_KINDS)
"""The codes of all findings."""

UNPROVEN = (
    "journal/unreadable",
    "journal/no-chain",
    "journal/key",
    "journal/no-key",
    "journal/dropped-anchors",
)
"""The codes for files that could not be followed or lost their anchor: perhaps altered."""


def make_finding(code: str, file: Path, message: str, line: int | None = None) -> VerifyFinding:
    """Return a finding with the severity and help of its code."""
    severity, remedy = _KINDS[code]
    return VerifyFinding(
        code=code, severity=severity, message=message, file=str(file), line=line, help=remedy
    )
