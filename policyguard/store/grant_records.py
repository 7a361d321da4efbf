"""Grants, encoded for and decoded from a store."""

from __future__ import annotations

import hmac
from collections.abc import Iterator

import msgspec

from policyguard.model.grant import Grant
from policyguard.store.constraint_records import ACTIVE, encode_msgpack
from policyguard.store.errors import DECODE_ERRORS
from policyguard.store.protocol import REVOKED, RevocableRecord, Store

_DOMAIN = b"policyguard grant 1\0"
_decoder = msgspec.msgpack.Decoder(Grant)


class StoredGrant(msgspec.Struct, frozen=True):
    """A grant and its state: `active`, or `revoked` by someone."""

    grant: Grant
    state: str
    revoked_by: str


def to_record(grant: Grant, key: bytes) -> RevocableRecord:
    """Encode an active grant for a store, with its MAC under a key."""
    payload = encode_msgpack(grant)
    return RevocableRecord(
        id=grant.id,
        scope=grant.scope,
        key=grant.entry,
        state=ACTIVE,
        updated_at=grant.granted_at,
        payload=payload,
        mac=sign_grant(payload, key),
    )


def sign_grant(payload: bytes, key: bytes) -> str:
    """Return the MAC of an encoded grant, in hex."""
    return hmac.new(key, _DOMAIN + payload, "sha256").hexdigest()


def decode_grant(record: RevocableRecord) -> Grant | None:
    """Decode a record; None if it is damaged."""
    try:
        return _decoder.decode(record.payload)
    except DECODE_ERRORS:
        return None


def list_grants(store: Store, *, include_revoked: bool = False) -> Iterator[StoredGrant]:
    """Yield a store's grants, by id, without those that are damaged."""
    for record in store.grants.list():
        if include_revoked or record.state != REVOKED:
            stored = _to_stored(record)
            if stored is not None:
                yield stored


def find_grant(store: Store, id_: str) -> StoredGrant | None:
    """Return the grant with this id."""
    record = store.grants.get(id_)
    return None if record is None else _to_stored(record)


def _to_stored(record: RevocableRecord) -> StoredGrant | None:
    grant = decode_grant(record)
    return None if grant is None else StoredGrant(grant, record.state, record.revoked_by)
