"""Snapshots of learned constraints and evidence, to carry to another guard."""

from __future__ import annotations

import msgspec

from policyguard.learned.constraint_set import ConstraintSet
from policyguard.model.constraint import Constraint, Evidence

VERSION = 1


class Snapshot(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Constraints, evidence, the ids of revoked constraints, and the key of the fingerprints."""

    version: int
    key: bytes
    constraints: tuple[Constraint, ...] = ()
    evidence: tuple[Evidence, ...] = ()
    revoked: tuple[str, ...] = ()


def encode(constraints: ConstraintSet, key: bytes) -> bytes:
    """Return a snapshot as JSON."""
    return msgspec.json.encode(
        Snapshot(
            version=VERSION,
            key=key,
            constraints=tuple(constraints),
            evidence=tuple(constraints.evidence()),
            revoked=constraints.revoked(),
        )
    )


def decode(data: bytes) -> Snapshot:
    """Decode a snapshot. `ValueError` if it is none, or of another version."""
    try:
        snapshot = msgspec.json.decode(data, type=Snapshot)
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        raise ValueError(f"not a snapshot of learned constraints: {error}") from None
    if snapshot.version != VERSION:
        raise ValueError(
            f"snapshot version {snapshot.version} is not supported; this version reads {VERSION}"
        )
    return snapshot


def restore(constraints: ConstraintSet, snapshot: Snapshot) -> None:
    """Add a snapshot, replacing constraints with the same id. What was revoked stays revoked."""
    for id_ in snapshot.revoked:
        constraints.revoke(id_)
    revoked = frozenset(constraints.revoked())
    for constraint in snapshot.constraints:
        if constraint.id not in revoked:
            constraints.put(constraint)
    for piece in snapshot.evidence:
        constraints.put_evidence(piece)
