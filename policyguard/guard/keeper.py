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
from policyguard.learned.memory import Memory, constraint_id
from policyguard.learned.snapshot import Snapshot
from policyguard.model.constraint import Lesson
from policyguard.model.policy import Policy
from policyguard.store.errors import StoreError
from policyguard.store.learned import constraint_of, evidence_of, packed, record
from policyguard.store.protocol import REVOKED, Caps, Store
from policyguard.store.protocol import Constraint as Record

if TYPE_CHECKING:
    from policyguard.store.durable import SqliteStore

EVERY = 1.0
"""Seconds within which other processes see a new constraint (DESIGN §3)."""


def opened(store: str | Path, policy: Policy) -> SqliteStore:
    """The store in the SQLite file of this path, made where it is new."""
    from policyguard.store.durable import SqliteStore  # only who keeps something loads SQLite

    caps = Caps(
        constraints=policy.bounds.constraints,
        evidence=policy.bounds.evidence,
        anchors=policy.bounds.journals,
    )
    return SqliteStore(store, caps=caps, sync=policy.journal.durability == "fsync")


class Keeper:
    """Keeps a memory and a store in step. Every method may raise `StoreError`.

    `due` is when to look at the store next, in seconds of `time.monotonic`.
    """

    def __init__(self, store: Store, memory: Memory) -> None:
        self.store = store
        self._memory = memory
        self._version = 0
        self.due = 0.0
        self._owing = False
        self._owed: dict[tuple[str, str], None] = {}
        self._pull_constraints()
        for _, _, payload in store.evidence.list():
            for piece in evidence_of(payload, store):
                memory.put_evidence(piece)
        memory.changed.clear()

    def look(self) -> None:
        """See what other processes have learned or revoked: at each check from `due` on.

        After a write that failed nothing goes on until the store takes it.
        """
        if self._owing:
            self.push(None)
        self.due = time.monotonic() + EVERY
        if self.store.constraints.version() != self._version:
            self._pull_constraints()

    def complete(
        self,
        fold: Callable[[], list[str]],
        attempt: Attempt,
        lessons: tuple[Lesson, ...],
        at: int | None,
    ) -> list[str]:
        """Fold a result and keep what it taught.

        Where the store fails the result counts all the same; the fault is told, and the next
        check answers as the policy's `on_internal_error` says.
        """
        taught: list[str] | None = None
        evidence = [
            (lesson.scope, lesson.counted)
            for lesson in lessons
            if not lesson.ok or self._memory.evidence_of(lesson.scope, lesson.counted)
        ]
        try:
            with self._learning(lessons, at):
                taught = fold()
        except StoreError as error:
            self._owe(evidence)
            attempt.fault("store", error)
        except BaseException:  # a signal: whether it was written nobody knows
            self._owe(evidence)
            raise
        return fold() if taught is None else taught

    @contextmanager
    def _learning(self, lessons: Iterable[Lesson], at: int | None) -> Iterator[None]:
        """Around the fold of lessons: what others know of them comes in, what is new goes out.

        One transaction, so that two processes that learn at once learn as one that learns both.
        """
        concerned = [lesson for lesson in lessons if not lesson.ok or self._known(lesson)]
        if not concerned:
            yield
            return
        with self.store.transaction():
            if self._owing:
                self._pay(at)
            for lesson in concerned:
                self._pull(lesson)
            yield
            for lesson in concerned:
                self._push_evidence(lesson)
            self._push_constraints(at)
        self._written()

    def push(self, at: int | None) -> None:
        """Write the constraints that have changed, and what could not be written before."""
        with self.store.transaction():
            self._pay(at)
        self._written()

    def revoke(self, id_: str, *, by: str, at: int) -> None:
        """Take a constraint back, for every process."""
        self.store.constraints.revoke(id_, by=by, at=at)
        self._memory.revoke(id_)
        self._memory.changed.discard(id_)

    def restore(self, snapshot: Snapshot, at: int) -> None:
        """Have in the store, too, what a snapshot has added to the memory."""
        self._owe((piece.scope, piece.counted) for piece in snapshot.evidence)
        with self.store.transaction():
            for id_ in snapshot.revoked:
                self.store.constraints.revoke(id_, by="snapshot", at=at)
                self._memory.changed.discard(id_)
            self._pay(at)
        self._written()

    def _owe(self, evidence: Iterable[tuple[str, str]]) -> None:
        """What was learned stands in memory only: these pieces of evidence, and `changed`."""
        self._owed.update(dict.fromkeys(evidence))
        self._owing = True
        self.due = 0.0

    def _pay(self, at: int | None) -> None:
        for place in self._owed:
            self._merge_evidence(*place)
        self._push_constraints(at)

    def _written(self) -> None:
        """All is in the store for good, now that the transaction is over."""
        self._owed.clear()
        self._memory.changed.clear()
        self._owing = False

    def _push_constraints(self, at: int | None) -> None:
        memory = self._memory
        for id_ in tuple(memory.changed):
            constraint = memory.get(id_)
            if constraint is None:
                self.store.constraints.remove(id_)
            elif not self.store.constraints.put(record(constraint, at)):
                memory.revoke(id_)  # another process has revoked it, and it stays so

    def _known(self, lesson: Lesson) -> bool:
        """Whether a success may have something to forget, here or with others."""
        if self._memory.evidence_of(lesson.scope, lesson.counted):
            return True
        if any(True for _ in self._memory.about(lesson.scope, lesson.key)):
            return True
        return self.store.evidence.get(lesson.scope, lesson.counted) is not None

    def _pull(self, lesson: Lesson) -> None:
        known = self.store.constraints.get(constraint_id(lesson))
        if known is not None:
            self._take(known)
        payload = self.store.evidence.get(lesson.scope, lesson.counted)
        self._memory.forget_evidence(lesson.scope, lesson.counted)
        for piece in evidence_of(payload, self.store):
            self._memory.put_evidence(piece)

    def _pull_constraints(self) -> None:
        changes = self.store.constraints.changes(self._version)
        if changes.whole:
            kept = {found.id for found in changes.records}
            for constraint in self._memory:
                if constraint.id not in kept:
                    self._memory.remove(constraint.id)
        for found in changes.records:
            self._take(found)
        self._version = changes.version
        self._memory.changed.clear()

    def _take(self, found: Record) -> None:
        if found.state == REVOKED:
            self._memory.revoke(found.id)
        else:
            self._memory.put(constraint_of(found, self.store))
            self._memory.changed.discard(found.id)

    def _push_evidence(self, lesson: Lesson) -> None:
        pieces = self._memory.evidence_of(lesson.scope, lesson.counted)
        if pieces:
            self.store.evidence.put(lesson.scope, lesson.counted, packed(tuple(pieces)))
        else:
            self.store.evidence.forget(lesson.scope, lesson.counted)

    def _merge_evidence(self, scope: str, counted: str) -> None:
        """Write evidence late: others may have written theirs since, and who counts more is right.

        Where there is none left, it has become a constraint, or a success has refuted it.
        """
        ours = self._memory.evidence_of(scope, counted)
        if not ours:
            self.store.evidence.forget(scope, counted)
            return
        kept = evidence_of(self.store.evidence.get(scope, counted), self.store)
        pieces = {piece.signature: piece for piece in kept}
        for piece in ours:
            other = pieces.get(piece.signature)
            if other is None or other.count <= piece.count:
                pieces[piece.signature] = piece
        self.store.evidence.put(scope, counted, packed(tuple(pieces.values())))
