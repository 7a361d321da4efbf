"""What a policy says on keeping journals, and the note that a deletion leaves."""

from __future__ import annotations

import msgspec

from policyguard.journal.chain import ChainPosition
from policyguard.store.protocol import AnchorStore, Pruned, SharedAnchorStore


class Retention(msgspec.Struct, frozen=True, kw_only=True):
    """Which journals to delete, and who says so.

    Those older than `keep_for` (ns), and the oldest beyond `max_journals`. After no load and no
    event for `max_gap` (ns), the time is not trusted. `policy` and `digest` name the policy.
    """

    keep_for: int
    max_journals: int
    max_gap: int
    policy: str
    digest: str


def make_note(
    session: str, end: ChainPosition, now: int, retention: Retention, anchors: AnchorStore
) -> Pruned:
    """Return the note that a session's journal, which ended at `end`, was deleted at `now` (ns)."""
    place = anchors.last_place(session) if isinstance(anchors, SharedAnchorStore) else ""
    position = (end.chain, end.count, end.hash, end.size)
    return Pruned(session, *position, now, retention.policy, retention.digest, place)
