"""The findings of `verify` and of opening a journal."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from policyguard.model.diagnostic import Severity
from policyguard.store.protocol import Pruned, Repaired


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
    "journal/lost-anchor": (
        "error",
        "unless the store was locked or full then, as `Decision.errors` said: find out who removed "
        "the anchor, or put an older store in its place",
    ),
    "journal/forged-anchor": (
        "error",
        "find out who can write the store; compare with an exported anchor (--anchor)",
    ),
    "journal/unsigned-anchor": (
        "warning",
        "if an earlier version of policyguard wrote it: open the session again, which signs it; "
        "else compare the journal with an exported anchor (--anchor)",
    ),
    "journal/no-anchor": ("info", "pass the store or an exported anchor, to detect a cut tail"),
    "journal/store-behind": (
        "error",
        "find out who removed the store's log or put an older store in its place; budgets and bans "
        "may have been reset",
    ),
    "journal/store-edited": (
        "error",
        "find out who changed budgets, bans, grants, marks, notes or the store's key; restore a "
        "backup, or begin a new store",
    ),
    "journal/dropped-anchors": (
        "error",
        "raise `bounds.journals`, or let journals expire (`journal.keep_for`); an earlier export "
        "(--anchor) still covers them",
    ),
    "journal/adopted": (
        "warning",
        "nothing, if a process was killed then; else compare these lines with what the session "
        "did: without a `journal_key` an attacker who can write the file can add lines",
    ),
    "journal/repaired": (
        "info",
        "nothing, if a process was killed then",
    ),
    "journal/handed-over": ("info", "nothing: the lines that are not here are on another host"),
    "journal/set-aside": (
        "warning",
        "nothing, if this host had lost the store then: calls that ran meanwhile are counted "
        "nowhere, and can be read in that file",
    ),
    "journal/pruned": (
        "info",
        "nothing, if that is your policy; an anchor exported before still counts these lines",
    ),
    "journal/empty": ("info", "nothing: a process died before its first line"),
}

_MEANINGS = {
    "journal/edited": "A line differs from what was written: its hash does not fit the chain.",
    "journal/dropped": "Lines are missing in the middle: the chain has a gap.",
    "journal/inserted": "A line was added that the chain does not lead to.",
    "journal/reordered": "The lines are all there, but not in the order of the chain.",
    "journal/rewritten": "The file is a valid chain, but not the one that was anchored.",
    "journal/foreign-chain": "The file holds the journal of another session, or of another run.",
    "journal/cut-tail": "Lines at the end are missing that were anchored.",
    "journal/missing-file": "A journal that was anchored is gone.",
    "journal/unreadable": "The file cannot be read, or is not a regular file.",
    "journal/no-chain": "The lines have no hashes, or there is none: the file is a trace, or "
    "something else, but not a journal.",
    "journal/key": "The journal was written with another key, so its hashes cannot be checked.",
    "journal/no-key": "The journal was written without a key, and others were written with one.",
    "journal/torn-line": "The last line is incomplete: a process died while writing it.",
    "journal/unanchored": "The last lines are newer than the last anchor.",
    "journal/lost-anchor": "The store lacks an anchor that this journal had for certain.",
    "journal/forged-anchor": "The journal has a key, and its anchor was made without that key.",
    "journal/unsigned-anchor": "The journal has a key; its anchor, perhaps of an earlier version "
    "that signed none, has no MAC.",
    "journal/no-anchor": "No anchor of this journal is known.",
    "journal/store-behind": "The store lacks its last transactions, of this boot of the machine.",
    "journal/store-edited": "Rows of the store were changed by another program.",
    "journal/dropped-anchors": "The store has forgotten anchors: it held more than it may keep.",
    "journal/adopted": "Lines beyond the last anchor were taken over when the session was opened.",
    "journal/repaired": "The end of the file was repaired when the session was opened.",
    "journal/handed-over": "The session went on on another host, or came from one.",
    "journal/set-aside": "Lines that a host wrote after another one had taken over the session.",
    "journal/pruned": "A journal was deleted because it was due, and a note of it kept.",
    "journal/empty": "The file has no line.",
}

CODES = tuple(_KINDS)
"""The codes of all findings."""

PAGES = {code: f"{_MEANINGS[code]} What to do: {help_}." for code, (_, help_) in _KINDS.items()}
"""What each code means and what to do, for `policyguard explain`."""

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


def describe_repair(file: Path, note: Repaired) -> Iterator[VerifyFinding]:
    """Return what was repaired in a file."""
    when = format_time(note.at)
    if note.adopted:
        lines = "1 line" if note.adopted == 1 else f"{note.adopted} lines"
        message = f"adopted {lines} beyond the anchor on {when}"
        code = "journal/repaired" if note.is_keyed else "journal/adopted"
        yield make_finding(code, file, message, note.first)
    if note.cut:
        message = f"cut {note.cut} bytes of an unfinished line on {when}"
        yield make_finding("journal/repaired", file, message, note.first + note.adopted)


def describe_unproven(file: Path, count: int, *, was_pruned: bool) -> VerifyFinding:
    """Return that no line of a file is anchored (any more, if its journal was pruned)."""
    message = f"none of {count} lines is anchored"
    if was_pruned:
        message = f"of a journal that was pruned: none of {count} lines is proven"
    return make_finding("journal/no-anchor", file, message)


def describe_unsigned(file: Path) -> VerifyFinding:
    """Return that a journal with a key has an anchor without a MAC."""
    return make_finding("journal/unsigned-anchor", file, "its anchor is not signed with its key")


def describe_pruning(file: Path, note: Pruned) -> VerifyFinding:
    """Return when and why a file was deleted."""
    message = (
        f"session {note.session!r:.80} with {note.count} lines was deleted on "
        f"{format_time(note.at)} by `{note.policy:.80}` ({note.digest[:12] or 'no policy'})"
    )
    return make_finding("journal/pruned", file, message)


def format_time(nanoseconds: int) -> str:
    """Return a time in UTC, to the second."""
    try:
        return f"{datetime.fromtimestamp(nanoseconds // 10**9, UTC):%Y-%m-%d %H:%M:%S} UTC"
    except (OverflowError, ValueError, OSError):
        return f"{nanoseconds} ns"
