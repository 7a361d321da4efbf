"""Constraints in a store, read and written as what they are."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

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
    """MessagePack, with escapes in place of halves of surrogate pairs, which UTF-8 has not."""
    try:
        return _encode(value)
    except UnicodeEncodeError:
        return _encode(_well_formed(msgspec.to_builtins(value)))


def _well_formed(value: Any) -> Any:
    if isinstance(value, str):
        return well_formed(value)
    if isinstance(value, dict):
        return {_well_formed(name): _well_formed(item) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_well_formed(item) for item in value]
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


def imported(lines: Iterable[bytes]) -> list[Constraint]:
    """The constraints of an export. Raises `ImportedError`."""
    found = []
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            found.append(msgspec.json.decode(line, type=Constraint))
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
