"""Constraints in a store, read and written as what they are."""

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
from policyguard.store.protocol import REVOKED, Store
from policyguard.store.protocol import ConstraintRecord as Record

ACTIVE = "active"
_constraint_decoder = msgspec.msgpack.Decoder(Constraint)
_evidence_decoder = msgspec.msgpack.Decoder(tuple[Evidence, ...])
_encode = msgspec.msgpack.Encoder().encode
_MIN_INT, _MAX_INT = -(2**63), 2**64 - 1
_MAX_FLOAT = sys.float_info.max


class StoredConstraint(msgspec.Struct, frozen=True):
    """A constraint and where it stands in its life: `active`, or `revoked` by somebody."""

    constraint: Constraint
    state: str
    revoked_by: str


def to_record(constraint: Constraint, at: int | None) -> Record:
    """A constraint as a store keeps it."""
    return Record(
        id=constraint.id,
        scope=constraint.scope,
        key=constraint.key,
        state=ACTIVE,
        updated_at=at or constraint.confirmed_at or 0,
        payload=encode_msgpack(constraint),
    )


def encode_msgpack(value: object) -> bytes:
    """MessagePack, with what it has not as near as it has it.

    Halves of surrogate pairs become escapes, whole numbers beyond 64 bits floating point.
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


def decode_constraint(found: Record, store: Store) -> Constraint:
    """The constraint of a record of this store. Raises `StoreError` where it is none."""
    try:
        return _constraint_decoder.decode(found.payload)
    except DECODE_ERRORS as error:
        raise damaged_error(_store_path(store), f"the constraint {found.id!r:.80}", error) from None


def decode_evidence(payload: bytes | None, store: Store) -> tuple[Evidence, ...]:
    """Evidence as this store keeps it; none for None. Raises `StoreError` where it is none."""
    try:
        return _evidence_decoder.decode(payload) if payload is not None else ()
    except DECODE_ERRORS as error:
        raise damaged_error(_store_path(store), "evidence", error) from None


def _store_path(store: Store) -> Path:
    return getattr(store, "path", Path("the store"))


def list_constraints(store: Store, *, include_revoked: bool = False) -> Iterator[StoredConstraint]:
    """The constraints of a store, by id; with `revoked` also those taken back."""
    for found in store.constraints.list():
        if include_revoked or found.state != REVOKED:
            yield StoredConstraint(decode_constraint(found, store), found.state, found.revoked_by)


def find_constraint(store: Store, id_: str) -> StoredConstraint | None:
    """The constraint of an id."""
    found = store.constraints.get(id_)
    if found is None:
        return None
    return StoredConstraint(decode_constraint(found, store), found.state, found.revoked_by)


def export_constraints(store: Store) -> Iterator[bytes]:
    """Every constraint that holds, one JSON object a line."""
    for held in list_constraints(store):
        yield msgspec.json.encode(held.constraint)


class ConstraintImportError(PolicyguardError):
    """A line that is no constraint; the message says which."""


_Count = Annotated[int, msgspec.Meta(ge=1, le=2**53)]
_Timestamp = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]


class _ImportedConstraint(Constraint, frozen=True, kw_only=True, omit_defaults=True):
    """A constraint that anybody may have written: its id and numbers are as learning makes them."""

    id: Annotated[str, msgspec.Meta(pattern=r"^k[0-9a-f]{12}\Z")]
    count: _Count
    learned_at: _Timestamp | None = None
    confirmed_at: _Timestamp | None = None


def parse_constraints(lines: Iterable[bytes]) -> list[Constraint]:
    """The constraints of an export. Raises `ImportedError`."""
    found: list[Constraint] = []
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            found.append(msgspec.json.decode(line, type=_ImportedConstraint))
        except DECODE_ERRORS as error:
            raise ConstraintImportError(f"line {number} is no constraint: {error}") from None
    return found


def import_constraints(store: Store, constraints: Iterable[Constraint]) -> tuple[int, int]:
    """Write constraints in one step. Returns how many were taken, and how many stay revoked."""
    taken = refused = 0
    with store.transaction():
        for constraint in constraints:
            if store.constraints.put(to_record(constraint, None)):
                taken += 1
            else:
                refused += 1
    return taken, refused
