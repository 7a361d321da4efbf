"""What a store is: the promises that memory and SQLite both keep.

A store keeps what must outlive a call, and most of it a process: the key of fingerprints, the
anchors of journals, who a session belongs to, constraints, the evidence for those to come, and what
was used of the budgets that processes share. What a constraint or a piece of evidence says is not
the store's business: it keeps bytes under a scope and a key. Times are integers, nanoseconds since
1970 in UTC, and always given: a store has no clock, and tells what was used last by counting.

Every method may raise `StoreError`. Each is atomic; what belongs together goes into one
`transaction`. All are safe to use from many threads, and after a fork.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager
from types import TracebackType
from typing import Protocol, Self

import msgspec

from policyguard.evaluator.budgets.usage import BudgetUsage


class Caps(msgspec.Struct, frozen=True, kw_only=True):
    """How many of each are kept at most; beyond that the least recently used go.

    They are the policy's `bounds`; `anchors`, of which each session has one, are its `journals`.
    """

    constraints: int
    evidence: int
    anchors: int


class Anchor(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How far a session's journal was known to reach: kept apart from it, to find what was cut.

    `chain` is the journal's own random id, `count` its number of lines, `hash` that of the last
    of them, `size` what they measure in bytes.
    """

    session: str
    chain: str
    count: int
    hash: str
    size: int


class AnchorStore(Protocol):
    """The anchors of journals, one a session."""

    def get(self, session: str) -> Anchor | None:
        """The session's anchor."""
        ...

    def put(self, anchor: Anchor) -> None:
        """Set the session's anchor."""
        ...

    def delete(self, session: str) -> None:
        """Forget the session's anchor, if there is one."""
        ...

    def all(self) -> Iterable[Anchor]:
        """All anchors, by session."""
        ...

    def count_evicted(self) -> int:
        """How many went because there were too many: without them, nothing proves their files."""
        ...


class ConstraintRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A constraint as it is kept. `payload` says what it bans and is read by others.

    `state` is the owner's word for where it stands in its life, but for `revoked`, which the
    store itself sets and guards. `revoked_by` is who revoked it.
    """

    id: str
    scope: str
    key: str
    state: str
    updated_at: int
    payload: bytes
    revoked_by: str = ""


REVOKED = "revoked"
"""The state of a constraint that a person or a program has taken back."""


class ConstraintChanges(msgspec.Struct, frozen=True):
    """What became of the constraints since a version.

    `records` are those written since; with `whole`, some were removed since, `records` are all
    that there are, and any other is gone. `version` is what to ask from next time.
    """

    version: int
    records: tuple[ConstraintRecord, ...]
    is_complete: bool


class ConstraintStore(Protocol):
    """Learned constraints, found by scope and key whatever their number."""

    def put(self, record: ConstraintRecord, *, revive: bool = False) -> bool:
        """Write a constraint, new or known by its id.

        One that has been revoked stays so: nothing is written and the answer is False, unless
        `revive` says that this is meant.
        """
        ...

    def get(self, id: str) -> ConstraintRecord | None:  # noqa: A002 - what it is called everywhere
        """The constraint of this id."""
        ...

    def find(self, scope: str, key: str) -> tuple[ConstraintRecord, ...]:
        """The constraints under exactly this scope and key, revoked ones too, by id."""
        ...

    def list(
        self, scope: str | None = None, state: str | None = None
    ) -> tuple[ConstraintRecord, ...]:
        """All constraints, or those of a scope or state, by id."""
        ...

    def revoke(self, id: str, *, by: str, at: int) -> ConstraintRecord | None:  # noqa: A002 - as above
        """Take a constraint back, for every process. None where there is none of this id."""
        ...

    def touch(self, ids: Iterable[str]) -> None:
        """Note that these were used: they are the last to go where there are too many."""
        ...

    def delete(self, id: str) -> None:  # noqa: A002 - as above
        """Forget a constraint altogether, if there is one of this id."""
        ...

    def version(self) -> int:
        """Grows with every change of the constraints, in whatever process. Cheap to ask.

        What it was inside a transaction that was then undone means nothing.
        """
        ...

    def changes(self, since: int) -> ConstraintChanges:
        """What happened after version `since`; from 0, all there is."""
        ...


class EvidenceStore(Protocol):
    """Failures that are remembered and have not become a constraint."""

    def get(self, scope: str, key: str) -> bytes | None:
        """What is remembered under this scope and key."""
        ...

    def put(self, scope: str, key: str, payload: bytes) -> None:
        """Remember under this scope and key, in place of what was there."""
        ...

    def delete(self, scope: str, key: str | None = None) -> None:
        """Forget what is under this scope and key; without a key, under the whole scope."""
        ...

    def list(self, scope: str | None = None) -> tuple[tuple[str, str, bytes], ...]:
        """Scope, key and payload of each, by scope and key."""
        ...


class QuotaSpec(msgspec.Struct, frozen=True, kw_only=True):
    """What a budget says of its purses. Amounts are integers, in units that only the budget knows.

    `limit` is what may be drawn in all, or in the last `within` nanoseconds. `held`: what is drawn
    beforehand is held until what was really used is known, and comes back where the holder dies;
    `places`: nothing is ever used, only held. At most `draws` are remembered apart in a window;
    `keys` is how many purses the budget may have.
    """

    limit: int
    within: int | None = None
    reserves: bool = False
    counts_slots: bool = False
    max_charges: int = 1024
    max_keys: int = 10_000


class QuotaKey(msgspec.Struct, frozen=True):
    """Which purse: of which budget, under which key, in which scope (the key's first part)."""

    budget: str
    key: str
    scope: str


class Quota(Protocol):
    """One holder's hand in a purse that any number of processes draw on.

    What the holder has on lease it draws without asking anybody; what others have on lease and do
    not use can be taken back from them, also where they sleep, are stopped or have died. What has
    been drawn counts from then on, whatever becomes of the process. To be used by one thread at a
    time, and outside transactions.
    """

    @property
    def usage(self) -> BudgetUsage:
        """What is known of the purse, as of the last `ask` or `look`: all holders' draws."""
        ...

    @property
    def granted(self) -> int:
        """What was granted to the whole scope, if this is the purse of one key in it."""
        ...

    @property
    def keys_when_full(self) -> int:
        """How many purses the budget had when there was no room for this one; else 0."""
        ...

    @property
    def has_reservation(self) -> bool:
        """Whether anything is held."""
        ...

    def has_room(self, amount: int) -> bool:
        """Whether that much is on lease, so that `pay` will most likely do."""
        ...

    def try_charge(self, amount: int, at: int | None) -> bool:
        """Draw from what is on lease. False where that does not do: then `Purses.ask`."""
        ...

    def charge(self, amount: int, at: int | None) -> None:
        """Count what was used, however much is left. Negative: give back what was used at `at`."""
        ...

    def reserve(self, amount: int) -> None:
        """Hold something, however much is left. Negative: hold it no longer."""
        ...


class QuotaStore(Protocol):
    """What scopes that processes share have used of their budgets, exactly."""

    def open(self, key: QuotaKey, spec: QuotaSpec) -> Quota:
        """A hand in a purse. Nothing is written until something is drawn."""
        ...

    def try_charge_all(self, charges: Sequence[tuple[Quota, int]], at: int | None) -> bool:
        """Draw these amounts, all or none, whoever has what is left on lease.

        May take more on lease for the holder: the less, the less is left. The first draw begins
        the purse's time. Afterwards each `account` says what stood there before the draw.
        """
        ...

    def refresh(self, quotas: Sequence[Quota], at: int | None, *, settle: bool = False) -> None:
        """Bring `account` up to date; with `settle` also with what the dead held or used."""
        ...

    def grant(self, key: QuotaKey, amount: int) -> None:
        """Raise the limit of a purse; of a whole scope where its key is the scope's."""
        ...

    def close(self, quotas: Sequence[Quota]) -> None:
        """Give back what is on lease. The purses may be used again."""
        ...


class SessionLock(Protocol):
    """A session is this process's own until the lease is closed, or the process has died.

    A lease that nobody has any more is closed.
    """

    @property
    def is_held(self) -> bool:
        """Whether it is held, by this very process: a forked child does not inherit it."""
        ...

    def release(self) -> None:
        """Give the session up."""
        ...

    def __enter__(self) -> Self: ...

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None: ...


class Store(Protocol):
    """One place where state lasts."""

    @property
    def fingerprint_key(self) -> bytes:
        """32 random bytes, the same as long as the store lives: the key of its fingerprints."""
        ...

    @property
    def anchors(self) -> AnchorStore:
        """The anchors of journals."""
        ...

    @property
    def constraints(self) -> ConstraintStore:
        """What has been learned."""
        ...

    @property
    def evidence(self) -> EvidenceStore:
        """What may come to be learned."""
        ...

    @property
    def quotas(self) -> QuotaStore:
        """What shared scopes have used of their budgets."""
        ...

    def lock_session(self, session: str, *, shared: bool = False) -> SessionLock:
        """Take a session; `SessionBusyError` where another process has it.

        Any number may have it at once where all of them ask for it as `shared`.
        """
        ...

    def transaction(self) -> AbstractContextManager[None]:
        """All that is read and written inside is one step, to threads and processes alike.

        An exception undoes it all. May be nested: the outermost one counts.
        """
        ...

    def close(self) -> None:
        """Free what is held open. The store may be used again: it opens anew."""
        ...
