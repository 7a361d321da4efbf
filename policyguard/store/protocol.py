"""What a store is: the promises that memory and SQLite both keep.

A store keeps what must outlive a call, and most of it a process: the key of fingerprints, the
anchors of journals, who a session belongs to, constraints, and the evidence for those to come.
What a constraint or a piece of evidence says is not the store's business: it keeps bytes under a
scope and a key. Times are integers, nanoseconds since 1970 in UTC, and always given: a store has
no clock, and tells what was used last by counting.

Every method may raise `StoreError`. Each is atomic; what belongs together goes into one
`transaction`. All are safe to use from many threads, and after a fork.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import AbstractContextManager
from types import TracebackType
from typing import Protocol, Self

import msgspec


class Caps(msgspec.Struct, frozen=True, kw_only=True):
    """How many of each are kept at most; beyond that the least recently used go.

    `constraints` and `evidence` are the policy's `bounds`, `anchors` is one a session.
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


class Anchors(Protocol):
    """The anchors of journals, one a session."""

    def get(self, session: str) -> Anchor | None:
        """The session's anchor."""
        ...

    def put(self, anchor: Anchor) -> None:
        """Set the session's anchor."""
        ...

    def forget(self, session: str) -> None:
        """Forget the session's anchor, if there is one."""
        ...

    def all(self) -> Iterable[Anchor]:
        """All anchors, by session."""
        ...


class Constraint(msgspec.Struct, frozen=True, kw_only=True):
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


class Changes(msgspec.Struct, frozen=True):
    """What became of the constraints since a version.

    `records` are those written since; with `whole`, some were removed since, `records` are all
    that there are, and any other is gone. `version` is what to ask from next time.
    """

    version: int
    records: tuple[Constraint, ...]
    whole: bool


class Constraints(Protocol):
    """Learned constraints, found by scope and key whatever their number."""

    def put(self, record: Constraint, *, revive: bool = False) -> bool:
        """Write a constraint, new or known by its id.

        One that has been revoked stays so: nothing is written and the answer is False, unless
        `revive` says that this is meant.
        """
        ...

    def get(self, id: str) -> Constraint | None:  # noqa: A002 - what it is called everywhere
        """The constraint of this id."""
        ...

    def find(self, scope: str, key: str) -> tuple[Constraint, ...]:
        """The constraints under exactly this scope and key, revoked ones too, by id."""
        ...

    def list(self, scope: str | None = None, state: str | None = None) -> tuple[Constraint, ...]:
        """All constraints, or those of a scope or state, by id."""
        ...

    def revoke(self, id: str, *, by: str, at: int) -> Constraint | None:  # noqa: A002 - as above
        """Take a constraint back, for every process. None where there is none of this id."""
        ...

    def touch(self, ids: Iterable[str]) -> None:
        """Note that these were used: they are the last to go where there are too many."""
        ...

    def remove(self, id: str) -> None:  # noqa: A002 - as above
        """Forget a constraint altogether, if there is one of this id."""
        ...

    def version(self) -> int:
        """Grows with every change of the constraints, in whatever process. Cheap to ask.

        What it was inside a transaction that was then undone means nothing.
        """
        ...

    def changes(self, since: int) -> Changes:
        """What happened after version `since`; from 0, all there is."""
        ...


class Evidence(Protocol):
    """Failures that are remembered and have not become a constraint."""

    def get(self, scope: str, key: str) -> bytes | None:
        """What is remembered under this scope and key."""
        ...

    def put(self, scope: str, key: str, payload: bytes) -> None:
        """Remember under this scope and key, in place of what was there."""
        ...

    def forget(self, scope: str, key: str | None = None) -> None:
        """Forget what is under this scope and key; without a key, under the whole scope."""
        ...

    def list(self, scope: str | None = None) -> tuple[tuple[str, str, bytes], ...]:
        """Scope, key and payload of each, by scope and key."""
        ...


class Lease(Protocol):
    """A session is this process's own until the lease is closed, or the process has died."""

    @property
    def held(self) -> bool:
        """Whether it is held, by this very process: a forked child does not inherit it."""
        ...

    def close(self) -> None:
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
    def key(self) -> bytes:
        """32 random bytes, the same as long as the store lives: the key of its fingerprints."""
        ...

    @property
    def anchors(self) -> Anchors:
        """The anchors of journals."""
        ...

    @property
    def constraints(self) -> Constraints:
        """What has been learned."""
        ...

    @property
    def evidence(self) -> Evidence:
        """What may come to be learned."""
        ...

    def lease(self, session: str, *, shared: bool = False) -> Lease:
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
