"""Keeps learned constraints and evidence in memory and in a store alike.

Memory makes look-ups cheap. The store is written before `record` returns, and polled for changes
by other processes at most once a second.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec.structs import replace

from policyguard.evaluator.attempt import CallResult
from policyguard.guard.clock import RESOLUTION, SteadyClock
from policyguard.guard.learning.learner import session_scope
from policyguard.learned.constraint_set import ConstraintSet, constraint_id
from policyguard.learned.snapshot import Snapshot
from policyguard.model.constraint import Constraint, Observation
from policyguard.model.policy import Policy
from policyguard.store.constraint_records import (
    decode_constraint,
    decode_evidence,
    encode_msgpack,
    to_record,
)
from policyguard.store.errors import StoreError
from policyguard.store.opening import open_named_store
from policyguard.store.protocol import REVOKED, Caps, Store
from policyguard.store.protocol import RevocableRecord as Record

if TYPE_CHECKING:
    pass

POLL_INTERVAL = 1.0
"""Seconds within which other processes see a new constraint."""


def open_store(store: str | Path, policy: Policy) -> Store:
    """Open the store in a SQLite file, created if it is new, or in a PostgreSQL database.

    `StoreError` if that needs a package that is not installed.
    """
    max_anchors = policy.bounds.journals
    if policy.journal.keep_for is not None:
        max_anchors *= 2  # journals go a little late; an evicted anchor looks like tampering
    caps = Caps(
        constraints=policy.bounds.constraints,
        evidence=policy.bounds.evidence,
        grants=policy.bounds.grants,
        anchors=max_anchors,
    )
    sync = policy.journal.durability == "fsync"
    return open_named_store(store, caps=caps, sync=sync)


class ConstraintSync:
    """Synchronises a constraint set with a store. Every method may raise `StoreError`.

    `next_poll` is when to poll the store next, in seconds of `time.monotonic`; `current_at` is when
    the set was last known to be that of the store.
    """

    def __init__(
        self, store: Store, constraint_set: ConstraintSet, steady_clock: SteadyClock
    ) -> None:
        self.store = store
        self._steady_clock = steady_clock
        self._constraint_set = constraint_set
        self._version = 0
        self.next_poll = 0.0
        self.current_at = time.monotonic()
        self._has_unsaved = False
        self._unsaved_evidence: dict[tuple[str, str], None] = {}
        self._load_changes()
        self._load_evidence(None)
        constraint_set.changed_ids.clear()
        watch = getattr(store, "on_change", None)
        if watch is not None:
            watch(self._wake)

    def _wake(self) -> None:
        """Look at the store with the next check, instead of a second later."""
        self.next_poll = 0.0

    def poll(self) -> None:
        """Load what other processes have learned or revoked: at each check from `next_poll` on.

        After a failed write, this raises until the store can be written.
        """
        if self._has_unsaved:
            self.save(None)
        now = time.monotonic()
        self.next_poll = now + POLL_INTERVAL
        if self.store.constraints.version() != self._version:
            self._load_changes()
        self.current_at = now

    def resume_session(self, session: str) -> None:
        """Load what another process may have learned in a session, to go on with it here."""
        self._load_evidence(session_scope(session))
        self.next_poll = 0.0

    def complete(self, fold: Callable[[], list[str]], result: CallResult) -> list[str]:
        """Fold a result and store what was learned from it.

        If the store fails the result counts all the same: the error is added to the attempt, and
        the next check follows the policy's `on_internal_error`.
        """
        learned: list[str] | None = None
        evidence = [
            (observation.scope, observation.evidence_key)
            for observation in result.observations
            if not observation.ok
            or self._constraint_set.evidence_for(observation.scope, observation.evidence_key)
        ]
        try:
            with self._transaction(result.observations, result.attempt.completed_at):
                learned = fold()
        except StoreError as error:
            self._mark_unsaved(evidence)
            result.attempt.add_error("store", error)
        except BaseException:  # a signal: it may have been written or not
            self._mark_unsaved(evidence)
            raise
        return fold() if learned is None else learned

    @contextmanager
    def _transaction(self, observations: Iterable[Observation], at: int | None) -> Iterator[None]:
        """Load what the store has on some observations, and store the result of folding them.

        This is one transaction, so that processes that learn at once do not overwrite each other.
        """
        relevant = [
            observation
            for observation in observations
            if not observation.ok or self._may_refute(observation)
        ]
        if not relevant:
            yield
            return
        with self.store.transaction():
            if self._has_unsaved:
                self._save_pending(at)
            for observation in relevant:
                self._load_related(observation)
            yield
            for observation in relevant:
                self._save_evidence(observation)
            self._save_constraints(at)
        self._clear_unsaved()

    def save(self, at: int | None) -> None:
        """Write changed constraints, and what could not be written before."""
        with self.store.transaction():
            self._save_pending(at)
        self._clear_unsaved()

    def forget_session(self, session: str) -> None:
        """Remove what an ended session has learned for itself, once it is removed from the set."""
        try:
            with self.store.transaction():
                self.store.evidence.delete_scope(session_scope(session))
                self._save_pending(None)
        except StoreError:
            self._mark_unsaved(())
            raise
        self._clear_unsaved()

    def revoke(self, id_: str, *, by: str, at: int) -> None:
        """Revoke a constraint, for every process."""
        self.store.constraints.revoke(id_, by=by, at=at)
        self._constraint_set.revoke(id_)
        self._constraint_set.changed_ids.discard(id_)

    def restore(self, snapshot: Snapshot, at: int) -> None:
        """Write what a snapshot has added to the constraint set."""
        self._mark_unsaved((piece.scope, piece.evidence_key) for piece in snapshot.evidence)
        with self.store.transaction():
            for id_ in snapshot.revoked:
                self.store.constraints.revoke(id_, by="snapshot", at=at)
                self._constraint_set.changed_ids.discard(id_)
            self._save_pending(at)
        self._clear_unsaved()

    def _mark_unsaved(self, evidence: Iterable[tuple[str, str]]) -> None:
        """Note that this evidence and the changed constraints are in memory only."""
        self._unsaved_evidence.update(dict.fromkeys(evidence))
        self._has_unsaved = True
        self.next_poll = 0.0

    def _save_pending(self, at: int | None) -> None:
        for key in self._unsaved_evidence:
            self._merge_evidence(*key)
        self._save_constraints(at)

    def _clear_unsaved(self) -> None:
        """Note that everything is in the store."""
        self._unsaved_evidence.clear()
        self._constraint_set.changed_ids.clear()
        self._has_unsaved = False

    def _save_constraints(self, at: int | None) -> None:
        constraint_set = self._constraint_set
        for id_ in tuple(constraint_set.changed_ids):
            constraint = constraint_set.get(id_)
            if constraint is None:
                self.store.constraints.delete(id_)
            elif not self.store.constraints.put(to_record(constraint, at)):
                constraint_set.revoke(id_)  # another process has revoked it

    def _may_refute(self, observation: Observation) -> bool:
        """Whether a success may refute evidence or a constraint, here or in the store."""
        if self._constraint_set.evidence_for(observation.scope, observation.evidence_key):
            return True
        if self._constraint_set.on_key(observation.scope, observation.key):
            return True
        return self.store.evidence.get(observation.scope, observation.evidence_key) is not None

    def _load_related(self, observation: Observation) -> None:
        stored = self.store.constraints.get(constraint_id(observation))
        if stored is not None:
            self._apply_record(stored)
        payload = self.store.evidence.get(observation.scope, observation.evidence_key)
        self._constraint_set.forget_evidence(observation.scope, observation.evidence_key)
        self._put_evidence(payload)

    def _load_evidence(self, scope: str | None) -> None:
        for _, _, payload in self.store.evidence.list(scope):
            self._put_evidence(payload)

    def _put_evidence(self, payload: bytes | None) -> None:
        for piece in decode_evidence(payload, self.store):
            self._constraint_set.put_evidence(piece)

    def _load_changes(self) -> None:
        changes = self.store.constraints.changes(self._version)
        if changes.is_complete:
            stored = {record.id for record in changes.records}
            for constraint in self._constraint_set:
                if constraint.id not in stored:
                    self._constraint_set.remove(constraint.id)
        for record in changes.records:
            self._apply_record(record)
        self._version = changes.version
        self._constraint_set.changed_ids.clear()

    def _apply_record(self, stored: Record) -> None:
        if stored.state == REVOKED:
            self._constraint_set.revoke(stored.id)
        else:
            self._constraint_set.put(self._redate(decode_constraint(stored, self.store)))
            self._constraint_set.changed_ids.discard(stored.id)

    def _redate(self, constraint: Constraint) -> Constraint:
        """Let a constraint that was confirmed under a clock ahead fade from now on."""
        now, confirmed_at = self._steady_clock.read()[0], constraint.confirmed_at
        if confirmed_at is None or confirmed_at - now < RESOLUTION:
            return constraint
        constraint = replace(
            constraint, confirmed_at=now, learned_at=min(now, constraint.learned_at or now)
        )
        self.store.constraints.put(to_record(constraint, now))
        return constraint

    def _save_evidence(self, observation: Observation) -> None:
        pieces = self._constraint_set.evidence_for(observation.scope, observation.evidence_key)
        if pieces:
            self.store.evidence.put(
                observation.scope, observation.evidence_key, encode_msgpack(tuple(pieces))
            )
        else:
            self.store.evidence.delete(observation.scope, observation.evidence_key)

    def _merge_evidence(self, scope: str, evidence_key: str) -> None:
        """Write evidence late: where others have counted more failures since, theirs is kept.

        If none is left here, it has become a constraint, or a success has refuted it.
        """
        own = self._constraint_set.evidence_for(scope, evidence_key)
        if not own:
            self.store.evidence.delete(scope, evidence_key)
            return
        stored = decode_evidence(self.store.evidence.get(scope, evidence_key), self.store)
        pieces = {piece.signature: piece for piece in stored}
        for piece in own:
            other = pieces.get(piece.signature)
            if other is None or other.count <= piece.count:
                pieces[piece.signature] = piece
        self.store.evidence.put(scope, evidence_key, encode_msgpack(tuple(pieces.values())))
