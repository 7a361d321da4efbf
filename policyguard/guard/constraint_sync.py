"""Learning that lasts: what is learned goes into a store, and what others learn comes out of it.

Constraints and evidence are held in memory, where a look-up costs nothing; the store is written
before a result is answered, and looked at for changes by other processes at most once a second.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from policyguard.evaluator.attempt import Attempt
from policyguard.learned.constraint_set import ConstraintSet, constraint_id
from policyguard.learned.snapshot import Snapshot
from policyguard.model.constraint import Observation
from policyguard.model.policy import Policy
from policyguard.store.constraint_records import (
    decode_constraint,
    decode_evidence,
    encode_msgpack,
    to_record,
)
from policyguard.store.errors import StoreError
from policyguard.store.protocol import REVOKED, Caps, Store
from policyguard.store.protocol import ConstraintRecord as Record

if TYPE_CHECKING:
    from policyguard.store.sqlite.store import SqliteStore

POLL_INTERVAL = 1.0
"""Seconds within which other processes see a new constraint (DESIGN §3)."""


def open_store(store: str | Path, policy: Policy) -> SqliteStore:
    """The store in the SQLite file of this path, made where it is new."""
    from policyguard.store.sqlite.store import SqliteStore  # only who keeps something loads SQLite

    caps = Caps(
        constraints=policy.bounds.constraints,
        evidence=policy.bounds.evidence,
        anchors=policy.bounds.journals,
    )
    return SqliteStore(store, caps=caps, sync=policy.journal.durability == "fsync")


class ConstraintSync:
    """Keeps a memory and a store in step. Every method may raise `StoreError`.

    `due` is when to look at the store next, in seconds of `time.monotonic`.
    """

    def __init__(self, store: Store, memory: ConstraintSet) -> None:
        self.store = store
        self._memory = memory
        self._version = 0
        self.next_poll = 0.0
        self._has_unsaved = False
        self._unsaved_evidence: dict[tuple[str, str], None] = {}
        self._load_changes()
        for _, _, payload in store.evidence.list():
            for piece in decode_evidence(payload, store):
                memory.put_evidence(piece)
        memory.changed_ids.clear()

    def poll(self) -> None:
        """See what other processes have learned or revoked: at each check from `due` on.

        After a write that failed nothing goes on until the store takes it.
        """
        if self._has_unsaved:
            self.save(None)
        self.next_poll = time.monotonic() + POLL_INTERVAL
        if self.store.constraints.version() != self._version:
            self._load_changes()

    def complete(
        self,
        fold: Callable[[], list[str]],
        attempt: Attempt,
        observations: tuple[Observation, ...],
        at: int | None,
    ) -> list[str]:
        """Fold a result and keep what it taught.

        Where the store fails the result counts all the same; the fault is told, and the next
        check answers as the policy's `on_internal_error` says.
        """
        taught: list[str] | None = None
        evidence = [
            (lesson.scope, lesson.evidence_key)
            for lesson in observations
            if not lesson.ok or self._memory.evidence_for(lesson.scope, lesson.evidence_key)
        ]
        try:
            with self._transaction(observations, at):
                taught = fold()
        except StoreError as error:
            self._mark_unsaved(evidence)
            attempt.add_error("store", error)
        except BaseException:  # a signal: whether it was written nobody knows
            self._mark_unsaved(evidence)
            raise
        return fold() if taught is None else taught

    @contextmanager
    def _transaction(self, observations: Iterable[Observation], at: int | None) -> Iterator[None]:
        """Around the fold of lessons: what others know of them comes in, what is new goes out.

        One transaction, so that two processes that learn at once learn as one that learns both.
        """
        concerned = [lesson for lesson in observations if not lesson.ok or self._may_refute(lesson)]
        if not concerned:
            yield
            return
        with self.store.transaction():
            if self._has_unsaved:
                self._save_pending(at)
            for lesson in concerned:
                self._load_related(lesson)
            yield
            for lesson in concerned:
                self._save_evidence(lesson)
            self._save_constraints(at)
        self._clear_unsaved()

    def save(self, at: int | None) -> None:
        """Write the constraints that have changed, and what could not be written before."""
        with self.store.transaction():
            self._save_pending(at)
        self._clear_unsaved()

    def revoke(self, id_: str, *, by: str, at: int) -> None:
        """Take a constraint back, for every process."""
        self.store.constraints.revoke(id_, by=by, at=at)
        self._memory.revoke(id_)
        self._memory.changed_ids.discard(id_)

    def restore(self, snapshot: Snapshot, at: int) -> None:
        """Have in the store, too, what a snapshot has added to the memory."""
        self._mark_unsaved((piece.scope, piece.evidence_key) for piece in snapshot.evidence)
        with self.store.transaction():
            for id_ in snapshot.revoked:
                self.store.constraints.revoke(id_, by="snapshot", at=at)
                self._memory.changed_ids.discard(id_)
            self._save_pending(at)
        self._clear_unsaved()

    def _mark_unsaved(self, evidence: Iterable[tuple[str, str]]) -> None:
        """What was learned stands in memory only: these pieces of evidence, and `changed`."""
        self._unsaved_evidence.update(dict.fromkeys(evidence))
        self._has_unsaved = True
        self.next_poll = 0.0

    def _save_pending(self, at: int | None) -> None:
        for place in self._unsaved_evidence:
            self._merge_evidence(*place)
        self._save_constraints(at)

    def _clear_unsaved(self) -> None:
        """All is in the store for good, now that the transaction is over."""
        self._unsaved_evidence.clear()
        self._memory.changed_ids.clear()
        self._has_unsaved = False

    def _save_constraints(self, at: int | None) -> None:
        memory = self._memory
        for id_ in tuple(memory.changed_ids):
            constraint = memory.get(id_)
            if constraint is None:
                self.store.constraints.delete(id_)
            elif not self.store.constraints.put(to_record(constraint, at)):
                memory.revoke(id_)  # another process has revoked it, and it stays so

    def _may_refute(self, observation: Observation) -> bool:
        """Whether a success may have something to forget, here or with others."""
        if self._memory.evidence_for(observation.scope, observation.evidence_key):
            return True
        if any(True for _ in self._memory.on_key(observation.scope, observation.key)):
            return True
        return self.store.evidence.get(observation.scope, observation.evidence_key) is not None

    def _load_related(self, observation: Observation) -> None:
        known = self.store.constraints.get(constraint_id(observation))
        if known is not None:
            self._apply_record(known)
        payload = self.store.evidence.get(observation.scope, observation.evidence_key)
        self._memory.forget_evidence(observation.scope, observation.evidence_key)
        for piece in decode_evidence(payload, self.store):
            self._memory.put_evidence(piece)

    def _load_changes(self) -> None:
        changes = self.store.constraints.changes(self._version)
        if changes.is_complete:
            kept = {found.id for found in changes.records}
            for constraint in self._memory:
                if constraint.id not in kept:
                    self._memory.remove(constraint.id)
        for found in changes.records:
            self._apply_record(found)
        self._version = changes.version
        self._memory.changed_ids.clear()

    def _apply_record(self, stored: Record) -> None:
        if stored.state == REVOKED:
            self._memory.revoke(stored.id)
        else:
            self._memory.put(decode_constraint(stored, self.store))
            self._memory.changed_ids.discard(stored.id)

    def _save_evidence(self, observation: Observation) -> None:
        pieces = self._memory.evidence_for(observation.scope, observation.evidence_key)
        if pieces:
            self.store.evidence.put(
                observation.scope, observation.evidence_key, encode_msgpack(tuple(pieces))
            )
        else:
            self.store.evidence.delete(observation.scope, observation.evidence_key)

    def _merge_evidence(self, scope: str, counted: str) -> None:
        """Write evidence late: others may have written theirs since, and who counts more is right.

        Where there is none left, it has become a constraint, or a success has refuted it.
        """
        ours = self._memory.evidence_for(scope, counted)
        if not ours:
            self.store.evidence.delete(scope, counted)
            return
        kept = decode_evidence(self.store.evidence.get(scope, counted), self.store)
        pieces = {piece.signature: piece for piece in kept}
        for piece in ours:
            other = pieces.get(piece.signature)
            if other is None or other.count <= piece.count:
                pieces[piece.signature] = piece
        self.store.evidence.put(scope, counted, encode_msgpack(tuple(pieces.values())))
