"""What has been learned, as one piece of data: to keep elsewhere, and to begin from."""

from __future__ import annotations

import msgspec

from policyguard.learned.constraint_set import ConstraintSet
from policyguard.model.constraint import Constraint, Evidence

VERSION = 1


class Snapshot(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Constraints, evidence, the ids of what was revoked, and the key of the fingerprints."""

    version: int
    key: bytes
    constraints: tuple[Constraint, ...] = ()
    evidence: tuple[Evidence, ...] = ()
    revoked: tuple[str, ...] = ()


def encode(constraints: ConstraintSet, key: bytes) -> bytes:
    """The snapshot of a memory, as JSON."""
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
    """Read a snapshot. `ValueError` for what is none, or is none of this version."""
    try:
        snapshot = msgspec.json.decode(data, type=Snapshot)
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        raise ValueError(f"this is no snapshot of what was learned: {error}") from None
    if snapshot.version != VERSION:
        raise ValueError(f"a snapshot of version {snapshot.version}; this version reads {VERSION}")
    return snapshot


def restore(constraints: ConstraintSet, snapshot: Snapshot) -> None:
    """Add a snapshot to a memory; what is known by the same id is replaced.

    What was revoked, there or here, stays so.
    """
    for id_ in snapshot.revoked:
        constraints.revoke(id_)
    revoked = frozenset(constraints.revoked())
    for constraint in snapshot.constraints:
        if constraint.id not in revoked:
            constraints.put(constraint)
    for piece in snapshot.evidence:
        constraints.put_evidence(piece)
