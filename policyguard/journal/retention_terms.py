"""What a policy says on keeping journals, and the note that a deletion leaves."""

from __future__ import annotations

import msgspec

from policyguard.journal.chain import ChainPosition
from policyguard.store.protocol import Anchor, AnchorStore, Pruned, SharedAnchorStore


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


def delete_anchor(
    anchors: AnchorStore, anchor: Anchor, end: ChainPosition, now: int, retention: Retention
) -> bool:
    """Replace an anchor by the note that its journal, which ended at `end`, went at `now` (ns).

    Return False, and change nothing, if the session has another anchor by now. Call it under the
    session's lock. Raises `StoreError`.
    """
    session = anchor.session
    if anchors.get(session) != anchor:
        return False
    place = anchors.last_place(session) if isinstance(anchors, SharedAnchorStore) else ""
    position = (end.chain, end.count, end.hash, end.size)
    anchors.add_note(Pruned(session, *position, now, retention.policy, retention.digest, place))
    anchors.delete(session)
    return True
