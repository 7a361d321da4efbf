"""Anchors in a file of their own: taken elsewhere, they are evidence against everyone.

One anchor a line, as JSON. Whoever can write journal and store, but not this file, cannot change
what was written before it was exported. A file may hold what was exported at several times: none
of its anchors takes the place of an earlier one, which the same somebody may not have liked.
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
    """Each anchor as a line of JSON, without its line feed."""
    return (for_json(msgspec.json.encode(anchor).decode()) for anchor in anchors)


def read_anchors(path: Path) -> list[Anchor]:
    """All exported anchors of a file, at least one; several may be of one session.

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
                path, f"line {number} is no anchor", "export it anew: policyguard journal anchors"
            ) from None
    if not anchors:
        raise JournalError(
            path, "holds no anchor", "export it anew: policyguard journal anchors -o FILE"
        )
    return anchors
