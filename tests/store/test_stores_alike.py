"""Budgets in memory, in SQLite and in PostgreSQL answer alike, whatever is asked in which order."""

from __future__ import annotations

import itertools
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from policyguard.model.amounts import SCALE
from policyguard.store.memory.store import MemoryStore
from policyguard.store.postgres.quota_handle import PostgresQuota
from policyguard.store.protocol import Caps, Store
from policyguard.store.quota.protocol import Quota, QuotaKey, QuotaSpec
from policyguard.store.sqlite.store import SqliteStore
from tests.examples import examples
from tests.store.postgres_server import Server, postgres

__all__ = ["postgres"]

CAPS = Caps(constraints=4, grants=4, evidence=4, anchors=4)
HOLDERS = 3
KEYS = ("p", "p\x1f1", "p\x1f2", "p\x1f3")
"""The first is that of the scope."""
_budgets = itertools.count()


class Step(NamedTuple):
    """What a holder asks of two keys, by a clock that is `ahead` of the others.

    By less than a window: which keys a clock beyond that takes for over is not the same everywhere.
    """

    name: str
    holder: int
    key: int
    other_key: int
    number: int
    ahead: int


class Holders:
    """Holders of one budget on one kind of store, each with its own store if they can."""

    def __init__(self, stores: list[Store], budget: str, spec: QuotaSpec) -> None:
        self.stores, self.budget, self.spec = stores, budget, spec
        self.unit = SCALE if spec.counts_slots else 1
        self.charged: list[tuple[int, int, int]] = []
        self.quotas: list[list[Quota]] = [
            [store.quotas.open(self.key(number), spec) for number in range(len(KEYS))]
            for store in stores
        ]
        self.reserved = [[0] * len(KEYS) for _ in stores]

    def key(self, number: int) -> QuotaKey:
        return QuotaKey(self.budget, KEYS[number], KEYS[0])

    def take(self, step: Step, at: int) -> object:
        """Take one step; return what can be seen of it."""
        quotas = self.stores[step.holder].quotas
        quota = self.quotas[step.holder][step.key]
        amount = step.number * self.unit
        match step.name:
            case "charge" | "charge late":
                if step.name == "charge late" and not self.spec.reserves:
                    _end_lease(self.stores[step.holder], quota)
                done = quota.try_charge(amount, at) or quotas.try_charge_all([(quota, amount)], at)
                if done:
                    self._count(step.holder, step.key, amount, at)
                return done
            case "charge both":
                other = self.quotas[step.holder][step.other_key]
                if other is quota:
                    return None
                done = quotas.try_charge_all([(quota, amount), (other, self.unit)], at)
                if done:
                    self._count(step.holder, step.key, amount, at)
                    self._count(step.holder, step.other_key, self.unit, at)
                return done, quota.usage.used_at(at, self.spec.within)
            case "spend" if not self.spec.counts_slots:
                self.close()  # what others have leased may be charged in spite of it
                quota.charge(amount, at)
                self.charged.append((step.key, amount, at))
            case "refund" if self.charged:
                key, amount, charged_at = self.charged.pop(step.number % len(self.charged))
                self.quotas[step.holder][key].charge(-amount, charged_at)
            case "reserve" if self.spec.reserves:
                self.close()
                quota.reserve(amount)
                self.reserved[step.holder][step.key] += amount
            case "free":
                amount = min(amount, self.reserved[step.holder][step.key])
                quota.reserve(-amount)
                self.reserved[step.holder][step.key] -= amount
            case "grant":
                quotas.grant(quota.key, amount)
            case "reset":
                self.close()  # a key that is leased keeps its place
                before = quotas.reset(quota.key, self.spec)
                self.charged = [one for one in self.charged if one[0] != step.key]
                return before.used_at(at, self.spec.within), before.granted
            case "close":
                quotas.close([quota])
            case "glance":  # as before a call that is allowed; what leaves the window is known
                quotas.refresh(self.quotas[step.holder], at)
                return [
                    one.usage.used_at(at + later, self.spec.within)
                    for one in self.quotas[step.holder]
                    for later in (0, 7, 15, 40)
                ]
        return None

    def look(self, holder: int, at: int) -> object:
        """Return what a holder sees of each key (not since when), and which there are."""
        self.stores[holder].quotas.refresh(self.quotas[holder], at, settle=True)
        seen = [
            (
                quota.usage.used_at(at, self.spec.within),
                quota.usage.granted,
                quota.usage.running,
                quota.granted,
                quota.keys_when_full,
                quota.has_reservation,
            )
            for quota in self.quotas[holder]
        ]
        keys = self.stores[holder].quotas.keys()
        return seen, [key for key in keys if key.budget == self.budget]

    def _count(self, holder: int, key: int, amount: int, at: int) -> None:
        if self.spec.reserves:
            self.reserved[holder][key] += amount
        else:
            self.charged.append((key, amount, at))

    def close(self) -> None:
        for store, quotas in zip(self.stores, self.quotas, strict=True):
            store.quotas.close(quotas)

    def end(self) -> None:
        for quotas, amounts in zip(self.quotas, self.reserved, strict=True):
            for quota, amount in zip(quotas, amounts, strict=True):
                quota.reserve(-amount)
        self.close()


def _end_lease(store: Store, quota: Quota) -> None:
    """Let the term of a lease be over, where leases have one."""
    if isinstance(quota, PostgresQuota):
        quota.suspend()
        store.quotas._database.execute(
            "UPDATE leases SET expires = '-infinity' WHERE id = %s", (quota.lease,)
        )


@pytest.fixture(scope="module")
def kinds(postgres: Server) -> Iterator[list[list[Store]]]:
    from policyguard.store.postgres.store import PostgresStore

    address = postgres.new_address()
    with tempfile.TemporaryDirectory() as folder:
        memory = MemoryStore(caps=CAPS)
        file = Path(folder) / "store.db"
        sqlite = [SqliteStore(file, caps=CAPS) for _ in range(HOLDERS)]
        hosts = [PostgresStore(address, caps=CAPS) for _ in range(HOLDERS)]
        yield [[memory] * HOLDERS, [*sqlite], [*hosts]]
        for store in (memory, *sqlite, *hosts):
            store.close()


STEPS = st.lists(
    st.builds(
        Step,
        st.sampled_from(
            ["charge"] * 8
            + ["charge both"] * 3
            + [
                "charge late",
                "spend",
                "refund",
                "reserve",
                "free",
                "free",
                "grant",
                "reset",
                "close",
                "look",
                "glance",
                "glance",
            ]
        ),
        st.integers(0, HOLDERS - 1),
        st.sampled_from([0, 1, 1, 1, 2, 3]),
        st.integers(0, len(KEYS) - 1),
        st.integers(1, 9),
        st.sampled_from([0] * 6 + [1, 5]),
    ),
    max_size=50,
)


@settings(
    max_examples=examples(200, 8),
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
@given(
    STEPS,
    st.sampled_from([None, 20, 60]),
    st.sampled_from(["amounts", "reserves", "slots"]),
    st.one_of(st.integers(0, 39), st.integers(200, 400)),
    st.sampled_from([1, 2, 3, 10]),
    st.sampled_from([2, 3, 1024]),
)
def test_all_stores_answer_alike(
    kinds: list[list[Store]],
    steps: list[Step],
    within: int | None,
    counted: str,
    limit: int,
    max_keys: int,
    max_charges: int,
) -> None:
    """A limit below 40 is one of which PostgreSQL leases nothing ahead; else one holder asks."""
    unit = SCALE if counted == "slots" else 1
    spec = QuotaSpec(
        limit=limit * unit,
        within=None if counted == "slots" else within,
        reserves=counted != "amounts",
        counts_slots=counted == "slots",
        max_keys=max_keys,
        max_charges=max_charges,
    )
    budget = f"b{next(_budgets)}"
    answers = []
    for stores in kinds:
        holders = Holders(stores, budget, spec)
        seen = []
        for at, step in enumerate(steps):
            one = step if limit < 40 else step._replace(holder=0)
            seen.append(holders.take(one, at + step.ahead))
            if step.name == "look":
                seen.append(holders.look(one.holder, at + step.ahead))
        seen.append(holders.look(0, len(steps)))
        holders.end()
        answers.append(seen)
    memory, sqlite, postgres = answers
    assert sqlite == memory
    assert postgres == memory
