"""A reset quota: every process charges from nothing again, and what is reserved stays so."""

from __future__ import annotations

from pathlib import Path

import pytest

from policyguard.store.protocol import Store
from policyguard.store.quota.protocol import QuotaKey, QuotaSpec
from policyguard.store.sqlite.store import SqliteStore
from tests.store.test_quotas import CAPS, NAME, die, drain, open_quotas, store, try_charge, usage_at

__all__ = ["store"]


@pytest.mark.parametrize("within", [None, 10])
def test_all_holders_together_charge_the_limit_again(store: Store, within: int | None) -> None:
    spec = QuotaSpec(limit=100, within=within)
    one, two = open_quotas(store, 2, spec)
    assert [try_charge(store, quota) for quota in (one, two, one, two)] == [True] * 4
    assert one.has_room(1)
    assert two.has_room(1)
    assert store.quotas.reset(NAME, spec).used_at(1, within) == 4
    assert [usage_at(store, quota) for quota in (one, two)] == [0, 0]
    assert drain(store, one) + drain(store, two) == 100
    assert drain(store, one) == 0
    assert usage_at(store, two) == 100


def test_a_lease_is_not_charged_without_asking_the_store(store: Store) -> None:
    """Its unused part is free for others, though the holder does not know yet."""
    spec = QuotaSpec(limit=100)
    idle, other = open_quotas(store, 2, spec)
    assert [try_charge(store, idle) for _ in range(2)] == [True] * 2
    store.quotas.reset(NAME, spec)
    assert drain(store, other) == 100
    assert not idle.try_charge(1, 1)
    assert drain(store, idle) == 0


def test_what_is_reserved_stays_reserved(store: Store) -> None:
    spec = QuotaSpec(limit=10, reserves=True)
    running, other = open_quotas(store, 2, spec)
    assert try_charge(store, running, 4)
    running.charge(3, 1)
    assert store.quotas.reset(NAME, spec).used == 3
    assert usage_at(store, other) == 4
    assert not try_charge(store, other, 7)
    running.reserve(-4)
    running.charge(5, 1)
    assert usage_at(store, other) == 5
    assert try_charge(store, other, 5)
    assert not try_charge(store, other, 1)


def test_grants_are_forgotten_with_the_usage(store: Store) -> None:
    spec = QuotaSpec(limit=3)
    (quota,) = open_quotas(store, 1, spec)
    store.quotas.grant(NAME, 2)
    assert drain(store, quota) == 5
    before = store.quotas.reset(NAME, spec)
    assert (before.used, before.granted) == (5, 2)
    assert drain(store, quota) == 3


def test_a_reset_quota_that_nobody_holds_is_gone(store: Store) -> None:
    spec = QuotaSpec(limit=3)
    other = QuotaKey("other", "p", "p")
    for key in (NAME, other):
        assert try_charge(store, store.quotas.open(key, spec))
    assert store.quotas.reset(NAME, spec).used == 1
    assert store.quotas.keys() == [other]
    assert store.quotas.reset(NAME, spec).used == 0


def test_the_time_starts_anew(store: Store) -> None:
    spec = QuotaSpec(limit=3)
    (quota,) = open_quotas(store, 1, spec)
    assert try_charge(store, quota, at=5)
    assert store.quotas.reset(NAME, spec).started_at == 5
    assert try_charge(store, quota, at=8)
    store.quotas.refresh([quota], 9)
    assert quota.usage.started_at == 8


def test_the_dead_are_settled_first(tmp_path: Path) -> None:
    """A dead process's reservations end, and its usage does not come back after the reset."""
    spec = QuotaSpec(limit=100, reserves=True)
    store, late = (SqliteStore(tmp_path / "store.db", caps=CAPS) for _ in range(2))
    (dead,) = open_quotas(store, 1, spec)
    assert try_charge(store, dead, 40)
    dead.charge(7, 1)
    die(store)
    assert late.quotas.reset(NAME, spec).used == 7
    assert late.quotas.keys() == []
    (quota,) = open_quotas(late, 1, spec)
    assert try_charge(late, quota, 100)


@pytest.mark.parametrize("charged", [2, 60, 100])
def test_a_living_lease_whose_file_is_lost_counts_in_full_once(
    tmp_path: Path, charged: int
) -> None:
    """Of 60 the first ones are in the store already, of 100 all."""
    spec = QuotaSpec(limit=100)
    store, late = (SqliteStore(tmp_path / "store.db", caps=CAPS) for _ in range(2))
    (lost,) = open_quotas(store, 1, spec)
    asked = 0
    for _ in range(charged):
        if not lost.try_charge(1, 1):
            assert store.quotas.try_charge_all([(lost, 1)], 1)
            asked += 1
    taken = asked + lost.ceiling
    (tmp_path / "store.db.purses").unlink()
    assert late.quotas.reset(NAME, spec).used == taken
    (quota,) = open_quotas(late, 1, spec)
    assert usage_at(late, quota) == 0
    assert drain(late, quota) == 100


def test_a_reset_lease_holds_nothing_that_could_be_lost(tmp_path: Path) -> None:
    spec = QuotaSpec(limit=100)
    store, late = (SqliteStore(tmp_path / "store.db", caps=CAPS) for _ in range(2))
    (lost,) = open_quotas(store, 1, spec)
    assert [try_charge(store, lost) for _ in range(9)] == [True] * 9
    assert late.quotas.reset(NAME, spec).used == 9
    (tmp_path / "store.db.purses").unlink()
    last = SqliteStore(tmp_path / "store.db", caps=CAPS)  # which has not mapped the file
    assert last.quotas.reset(NAME, spec).used == 0
