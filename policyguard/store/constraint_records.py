"""Constraints and evidence, encoded for and decoded from a store."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Annotated, Any

import msgspec

from policyguard.model.constraint import Constraint, Evidence
from policyguard.model.errors import PolicyguardError
from policyguard.model.text import escape_surrogates
from policyguard.store.errors import DECODE_ERRORS, damaged_error
from policyguard.store.json_lines import number_lines
from policyguard.store.protocol import REVOKED, RevocableRecord, Store

ACTIVE = "active"
_constraint_decoder = msgspec.msgpack.Decoder(Constraint)
_evidence_decoder = msgspec.msgpack.Decoder(tuple[Evidence, ...])
_encode = msgspec.msgpack.Encoder().encode
_MIN_INT, _MAX_INT = -(2**63), 2**64 - 1
_MAX_FLOAT = sys.float_info.max


class StoredConstraint(msgspec.Struct, frozen=True):
    """A constraint and its state: `active`, or `revoked` by someone."""

    constraint: Constraint
    state: str
    revoked_by: str


def to_record(constraint: Constraint, at: int | None) -> RevocableRecord:
    """Encode an active constraint for a store."""
    return RevocableRecord(
        id=constraint.id,
        scope=constraint.scope,
        key=constraint.key,
        state=ACTIVE,
        updated_at=at or constraint.confirmed_at or 0,
        payload=encode_msgpack(constraint),
    )


def encode_msgpack(value: object) -> bytes:
    """Encode a value as MessagePack.

    Lone surrogates become escapes, and integers beyond 64 bits floats.
    """
    try:
        return _encode(value)
    except (UnicodeEncodeError, OverflowError):
        return _encode(_to_encodable(msgspec.to_builtins(value)))


def _to_encodable(value: Any) -> Any:
    if isinstance(value, str):
        return escape_surrogates(value)
    if isinstance(value, int) and not _MIN_INT <= value <= _MAX_INT:
        return float(max(-_MAX_FLOAT, min(value, _MAX_FLOAT)))
    if isinstance(value, dict):
        return {_to_encodable(name): _to_encodable(item) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_to_encodable(item) for item in value]
    return value


def decode_constraint(record: RevocableRecord, store: Store) -> Constraint:
    """Decode a record of this store. Raises `StoreError` if it is damaged."""
    try:
        return _constraint_decoder.decode(record.payload)
    except DECODE_ERRORS as error:
        name = f"the constraint {record.id!r:.80}"
        raise damaged_error(_store_path(store), name, error) from None


def decode_evidence(payload: bytes | None, store: Store) -> tuple[Evidence, ...]:
    """Decode evidence of this store, if there is any. Raises `StoreError` if it is damaged."""
    try:
        return _evidence_decoder.decode(payload) if payload is not None else ()
    except DECODE_ERRORS as error:
        raise damaged_error(_store_path(store), "evidence", error) from None


def _store_path(store: Store) -> Path:
    return getattr(store, "path", Path("the store"))


def list_constraints(store: Store, *, include_revoked: bool = False) -> Iterator[StoredConstraint]:
    """Yield a store's constraints, by id."""
    for record in store.constraints.list():
        if include_revoked or record.state != REVOKED:
            yield _decode_record(record, store)


def find_constraint(store: Store, id_: str) -> StoredConstraint | None:
    """Return the constraint with this id."""
    record = store.constraints.get(id_)
    return None if record is None else _decode_record(record, store)


def _decode_record(record: RevocableRecord, store: Store) -> StoredConstraint:
    return StoredConstraint(decode_constraint(record, store), record.state, record.revoked_by)


def export_constraints(store: Store) -> Iterator[bytes]:
    """Yield every active constraint as one line of JSON."""
    for stored in list_constraints(store):
        yield msgspec.json.encode(stored.constraint)


class ConstraintImportError(PolicyguardError):
    """A line is not a constraint; the message says which."""


_Count = Annotated[int, msgspec.Meta(ge=1, le=2**53)]
_Timestamp = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]


class _ImportedConstraint(Constraint, frozen=True, kw_only=True, omit_defaults=True):
    """A constraint from outside, restricted to the ids and numbers that learning produces."""

    id: Annotated[str, msgspec.Meta(pattern=r"^k[0-9a-f]{12}\Z")]
    count: _Count
    learned_at: _Timestamp | None = None
    confirmed_at: _Timestamp | None = None


def parse_constraints(lines: Iterable[bytes]) -> list[Constraint]:
    """Parse an export. Raises `ConstraintImportError`."""
    constraints: list[Constraint] = []
    number = 0
    try:
        for number, line in number_lines(lines):  # noqa: B007 - see below
            constraints.append(msgspec.json.decode(line, type=_ImportedConstraint))
    except DECODE_ERRORS as error:
        raise ConstraintImportError(f"line {number} is not a constraint: {error}") from None
    except OSError as error:
        raise ConstraintImportError(f"cannot be read: {error.strerror}") from None
    return constraints


def import_constraints(store: Store, constraints: Iterable[Constraint]) -> tuple[int, int]:
    """Write constraints in one step. Return how many were imported, and how many stay revoked."""
    imported = revoked = 0
    with store.transaction():
        for constraint in constraints:
            if store.constraints.put(to_record(constraint, None)):
                imported += 1
            else:
                revoked += 1
    return imported, revoked
