"""Anchors that only the holder of the journals' key can write.

With a key, each anchor has a MAC. A journal whose first line has the current id of the key was
begun by a version that signs anchors and anchors the first line before the second is written: its
anchor must exist and be signed. Earlier versions used another id of the same key. Their journals
may have an anchor that is not signed, until the session is opened again.
"""

from __future__ import annotations

import hmac

import msgspec

from policyguard.journal.chain import Hasher
from policyguard.store.protocol import Anchor

_DOMAIN = b"policyguard anchor 1\0"


def sign_anchor(anchor: Anchor, hasher: Hasher) -> Anchor:
    """Return an anchor with its MAC; without a key, the anchor."""
    return msgspec.structs.replace(anchor, mac=_mac(anchor, hasher)) if hasher.key_id else anchor


def find_forgery(anchor: Anchor, hasher: Hasher, key_id: str) -> str:
    """Return why the holder of the key did not write an anchor; empty if nothing shows that.

    `key_id` is that of the journal's first line, which the hasher's key has signed.
    """
    if not key_id:
        return ""
    if not anchor.mac:
        return "it is not signed" if key_id == hasher.key_id else ""
    is_signed = hmac.compare_digest(anchor.mac.encode(), _mac(anchor, hasher).encode())
    return "" if is_signed else "it was changed, or signed with another key"


def is_unsigned(anchor: Anchor, hasher: Hasher, key_id: str) -> bool:
    """Whether an earlier version may have written an anchor, which did not sign it."""
    return bool(key_id) and key_id != hasher.key_id and not anchor.mac


def _mac(anchor: Anchor, hasher: Hasher) -> str:
    fields = msgspec.structs.astuple(msgspec.structs.replace(anchor, mac=""))
    return hasher.digest(_DOMAIN + msgspec.json.encode(fields))
