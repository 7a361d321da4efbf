"""Files of journals that were deleted as they were due, by another host: this one was behind.

Their anchors are gone, and the note proves only the line where the journal ended. So no session
goes on from such a file: it begins anew, as on any other host.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from policyguard.journal.chain import parse_link
from policyguard.journal.errors import JournalError
from policyguard.journal.findings import VerifyFinding, format_time, make_finding
from policyguard.journal.folder import file_name
from policyguard.journal.handover import ASIDE, place_of
from policyguard.store.protocol import AnchorStore, Pruned


def find_pruning(path: Path, anchors: AnchorStore) -> Pruned | None:
    """Return the note that the journal of a file was deleted; None without one or without a file.

    Raises `StoreError`.
    """
    try:
        with path.open("rb") as file:
            link = parse_link(file.readline()[:-1])
    except OSError:
        return None
    if link is None:
        return None
    for note in anchors.notes():
        if (
            isinstance(note, Pruned)
            and note.chain == link.chain
            and file_name(note.session) == path.name
        ):
            return note
    return None


def _find_pruning_elsewhere(path: Path, anchors: AnchorStore) -> Pruned | None:
    note = find_pruning(path, anchors)
    return None if note is None or note.place == place_of(path.parent) else note


def is_left_over(path: Path, anchors: AnchorStore) -> bool:
    """Whether a file's journal ended, and was deleted, elsewhere. Raises `StoreError`."""
    return _find_pruning_elsewhere(path, anchors) is not None


def set_left_over_aside(path: Path, anchors: AnchorStore) -> Iterator[VerifyFinding]:
    """Put a file aside whose journal ended, and was deleted, elsewhere, and say so.

    Raises `JournalError` if it cannot be renamed, and `StoreError`.
    """
    note = _find_pruning_elsewhere(path, anchors)
    if note is None:
        return
    aside = path.with_name(f"{path.name}.{note.count}{ASIDE}")
    try:
        path.rename(aside)
    except OSError as error:
        reason = f"cannot be put aside: {error.strerror or error}"
        raise JournalError(path, reason, "check that you can write to the folder") from None
    message = f"the journal was pruned on {format_time(note.at)}: the session begins anew, and "
    yield make_finding("journal/pruned", path, f"{message}what was here is in {aside}")
