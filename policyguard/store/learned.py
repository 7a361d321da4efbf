"""Constraints in a store, read and written as what they are."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Annotated, Any

import msgspec

from policyguard.model.constraint import Constraint, Evidence
from policyguard.store.errors import UNREADABLE, damaged
from policyguard.store.protocol import REVOKED, Store
from policyguard.store.protocol import Constraint as Record
from policyguard.store.text import well_formed

ACTIVE = "active"
_constraint = msgspec.msgpack.Decoder(Constraint)
_evidence = msgspec.msgpack.Decoder(tuple[Evidence, ...])
_encode = msgspec.msgpack.Encoder().encode
_LEAST, _MOST = -(2**63), 2**64 - 1
_GREATEST = sys.float_info.max


class Kept(msgspec.Struct, frozen=True):
    """A constraint and where it stands in its life: `active`, or `revoked` by somebody."""

    constraint: Constraint
    state: str
    revoked_by: str


def record(constraint: Constraint, at: int | None) -> Record:
    """A constraint as a store keeps it."""
    return Record(
        id=constraint.id,
        scope=constraint.scope,
        key=constraint.key,
        state=ACTIVE,
        updated_at=at or constraint.confirmed_at or 0,
        payload=packed(constraint),
    )


def packed(value: object) -> bytes:
    """MessagePack, with what it has not as near as it has it.

    Halves of surrogate pairs become escapes, whole numbers beyond 64 bits floating point.
    """
    try:
        return _encode(value)
    except (UnicodeEncodeError, OverflowError):
        return _encode(_near(msgspec.to_builtins(value)))


def _near(value: Any) -> Any:
    if isinstance(value, str):
        return well_formed(value)
    if isinstance(value, int) and not _LEAST <= value <= _MOST:
        return float(max(-_GREATEST, min(value, _GREATEST)))
    if isinstance(value, dict):
        return {_near(name): _near(item) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_near(item) for item in value]
    return value


def constraint_of(found: Record, store: Store) -> Constraint:
    """The constraint of a record of this store. Raises `StoreError` where it is none."""
    try:
        return _constraint.decode(found.payload)
    except UNREADABLE as error:
        raise damaged(_place(store), f"the constraint {found.id!r:.80}", error) from None


def evidence_of(payload: bytes | None, store: Store) -> tuple[Evidence, ...]:
    """Evidence as this store keeps it; none for None. Raises `StoreError` where it is none."""
    try:
        return _evidence.decode(payload) if payload is not None else ()
    except UNREADABLE as error:
        raise damaged(_place(store), "evidence", error) from None


def _place(store: Store) -> Path:
    return getattr(store, "path", Path("the store"))


def kept(store: Store, *, revoked: bool = False) -> Iterator[Kept]:
    """The constraints of a store, by id; with `revoked` also those taken back."""
    for found in store.constraints.list():
        if revoked or found.state != REVOKED:
            yield Kept(constraint_of(found, store), found.state, found.revoked_by)


def one(store: Store, id_: str) -> Kept | None:
    """The constraint of an id."""
    found = store.constraints.get(id_)
    if found is None:
        return None
    return Kept(constraint_of(found, store), found.state, found.revoked_by)


def export(store: Store) -> Iterator[bytes]:
    """Every constraint that holds, one JSON object a line."""
    for held in kept(store):
        yield msgspec.json.encode(held.constraint)


class ImportedError(Exception):
    """A line that is no constraint; the message says which."""


_Count = Annotated[int, msgspec.Meta(ge=1, le=2**53)]
_Moment = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]


class _Imported(Constraint, frozen=True, kw_only=True, omit_defaults=True):
    """A constraint that anybody may have written: its id and numbers are as learning makes them."""

    id: Annotated[str, msgspec.Meta(pattern=r"^k[0-9a-f]{12}\Z")]
    count: _Count
    learned_at: _Moment | None = None
    confirmed_at: _Moment | None = None


def imported(lines: Iterable[bytes]) -> list[Constraint]:
    """The constraints of an export. Raises `ImportedError`."""
    found: list[Constraint] = []
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            found.append(msgspec.json.decode(line, type=_Imported))
        except UNREADABLE as error:
            raise ImportedError(f"line {number} is no constraint: {error}") from None
    return found


def take(store: Store, constraints: Iterable[Constraint]) -> tuple[int, int]:
    """Write constraints in one step. Returns how many were taken, and how many stay revoked."""
    taken = refused = 0
    with store.transaction():
        for constraint in constraints:
            if store.constraints.put(record(constraint, None)):
                taken += 1
            else:
                refused += 1
    return taken, refused
