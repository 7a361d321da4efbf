"""Exported anchors: kept elsewhere, they are evidence against everyone.

A file holds one anchor per line, as JSON. An attacker who can write journal and store, but not this
file, cannot change what was written before the export. A file may hold several exports: none of its
anchors replaces an earlier one, which the attacker may have wanted to hide.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import msgspec

from policyguard.journal.errors import JournalError
from policyguard.report.escape import for_json
from policyguard.store.protocol import Anchor

_decoder = msgspec.json.Decoder(Anchor)


def anchor_lines(anchors: Iterable[Anchor]) -> Iterable[str]:
    """Return each anchor as a line of JSON, without line feed."""
    return (for_json(msgspec.json.encode(anchor).decode()) for anchor in anchors)


def read_anchors(path: Path) -> list[Anchor]:
    """Read the anchors of a file, at least one; a session may have several.

    Raises `JournalError`.
    """
    try:
        lines = path.read_bytes().splitlines()
    except OSError as error:
        raise JournalError(
            path, f"cannot be read: {error.strerror}", "name a file of exported anchors"
        ) from None
    anchors = []
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            anchors.append(_decoder.decode(line))
        except (msgspec.DecodeError, UnicodeError):
            raise JournalError(
                path, f"line {number} is not an anchor", "export again: policyguard journal anchors"
            ) from None
    if not anchors:
        raise JournalError(
            path, "contains no anchor", "export again: policyguard journal anchors -o FILE"
        )
    return anchors
