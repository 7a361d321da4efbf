"""What `verify` reports of the store itself."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import msgspec

from policyguard.journal.findings import VerifyFinding, make_finding
from policyguard.store.protocol import AnchorStore


class StoreState(msgspec.Struct, frozen=True):
    """A store's file, how many of its last transactions it lacks, and its edited tables."""

    path: Path
    lost: int
    edited: tuple[str, ...]


def find_evicted(path: Path, anchors: AnchorStore) -> Iterator[VerifyFinding]:
    """Report evicted anchors: their journals may have been cut or removed unnoticed."""
    evicted = anchors.count_evicted()
    if evicted:
        what = "anchor of 1 session" if evicted == 1 else f"anchors of {evicted} sessions"
        message = f"the store evicted the {what}, beyond `bounds.journals`: "
        message += "sessions without an anchor are not proven"
        yield make_finding("journal/dropped-anchors", path, message)


def describe_state(store: StoreState) -> Iterator[VerifyFinding]:
    """Report lost transactions and edited tables."""
    if store.lost:
        message = f"transactions that were made last are missing: {store.lost}"
        yield make_finding("journal/store-behind", store.path, message)
    if store.edited:
        tables = ", ".join(f"`{table}`" for table in store.edited)
        message = f"another program changed rows of {tables}"
        yield make_finding("journal/store-edited", store.path, message)
