"""Exported anchors: one per line of JSON, with the notes that explain some of them."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import msgspec

from policyguard.engines.input_file import open_input
from policyguard.journal.errors import JournalError
from policyguard.report.escape import for_json
from policyguard.store.json_lines import number_lines, read_lines
from policyguard.store.paths import hide_address
from policyguard.store.protocol import Anchor, JournalNote, Pruned

_anchor_decoder = msgspec.json.Decoder(Anchor)
_note_decoder = msgspec.json.Decoder(JournalNote)


def anchor_lines(anchors: Iterable[Anchor | JournalNote]) -> Iterable[str]:
    """Return each anchor or note as a line of JSON, without line feed."""
    return (for_json(msgspec.json.encode(anchor).decode()) for anchor in anchors)


def read_anchors(path: Path) -> list[Anchor | JournalNote]:
    """Read the anchors of a file, at least one, and notes; a session may have several.

    Raises `JournalError`.
    """
    anchors: list[Anchor | JournalNote] = []
    number = 0
    try:
        with open_input(path) as file:
            for number, line in number_lines(read_lines(file)):  # noqa: B007 - see below
                is_note = line.startswith(b'{"note":')
                anchors.append((_note_decoder if is_note else _anchor_decoder).decode(line))
    except OSError as error:
        raise JournalError(
            hide_address(path),
            f"cannot be read: {error.strerror}",
            "name a file of exported anchors",
        ) from None
    except (msgspec.DecodeError, UnicodeError):
        raise JournalError(
            path, f"line {number} is not an anchor", "export again: policyguard journal anchors"
        ) from None
    if not any(isinstance(one, (Anchor, Pruned)) for one in anchors):
        raise JournalError(
            path, "contains no anchor", "export again: policyguard journal anchors -o FILE"
        )
    return anchors
