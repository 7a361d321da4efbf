"""The marks of agents and projects, encoded for and decoded from a store.

A mark may let calls run, so a row that another program wrote must not count: each has a MAC under
the journals' key, or else the store's.
"""

from __future__ import annotations

import hashlib
import hmac

import msgspec

from policyguard.evaluator.marks.mark_state import MarkState
from policyguard.evaluator.marks.mark_tables import Place
from policyguard.store.constraint_records import ACTIVE, encode_msgpack
from policyguard.store.errors import DECODE_ERRORS
from policyguard.store.protocol import RevocableRecord

_DOMAIN = b"policyguard mark 1\0"
_decoder = msgspec.msgpack.Decoder(MarkState)
_INDEXED_CHARACTERS = 256
"""The longest part of a name in an id: PostgreSQL indexes no text of more than some 2,700 bytes."""

FALLEN = "\x1e"
"""Instead of an owner: the record of all that have fallen out. No name is like it."""


def mark_id(place: Place, mark: str) -> str:
    """Return the id of a mark's record; neither scopes nor marks have the separator.

    Of a long name it has the hash, after a character that no name has.
    """
    scope, owner = place
    if len(owner) + len(mark) > _INDEXED_CHARACTERS:
        digest = hashlib.sha256("\x1f".join((owner, mark)).encode()).hexdigest()
        owner, mark = f"\x1e{digest}", ""
    return f"{scope}\x1f{owner}\x1f{mark}"


def to_record(place: Place, mark: str, state: MarkState, at: int, key: bytes) -> RevocableRecord:
    """Encode a mark for a store at `at` (ns), with its MAC under a key."""
    id_, payload = mark_id(place, mark), encode_msgpack(state)
    return RevocableRecord(
        id=id_,
        scope="\x1f".join(place),
        key=mark,
        state=ACTIVE,
        updated_at=at,
        payload=payload,
        mac=_sign(id_, payload, key),
    )


def decode_mark(record: RevocableRecord, key: bytes) -> MarkState | None:
    """Decode a record; None if it is damaged, or no holder of the key wrote it."""
    signed = _sign(record.id, record.payload, key)
    if not hmac.compare_digest(record.mac.encode(), signed.encode()):
        return None
    try:
        return _decoder.decode(record.payload)
    except DECODE_ERRORS:
        return None


def _sign(id_: str, payload: bytes, key: bytes) -> str:
    """Return the MAC of a mark, in hex: of one record, so that no two can be exchanged."""
    return hmac.new(key, _DOMAIN + encode_msgpack((id_, payload)), "sha256").hexdigest()
