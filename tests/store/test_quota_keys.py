"""A budget has so many keys at most in any store, and those that are over make room."""

from __future__ import annotations

from policyguard.store.protocol import Store
from policyguard.store.quota.protocol import QuotaKey, QuotaSpec
from tests.store.test_protocol import postgres, store
from tests.store.test_quotas import NAME, try_charge, usage_at

__all__ = ["postgres", "store"]


def test_a_budget_with_too_many_keys_refuses_more(store: Store) -> None:
    spec = QuotaSpec(limit=3, max_keys=3)
    quotas = [store.quotas.open(QuotaKey("b", f"p\x1f{n}", "p"), spec) for n in range(4)]
    assert quotas[3].keys_when_full == 0
    assert [try_charge(store, quota) for quota in quotas] == [True, True, True, False]
    assert (quotas[3].keys_when_full, quotas[0].keys_when_full) == (3, 0)
    store.quotas.refresh([quotas[3]], 1)
    assert quotas[3].keys_when_full == 3
    assert try_charge(store, store.quotas.open(NAME, spec)), "a scope's own key always fits"
    assert try_charge(store, quotas[0])


def test_expired_keys_make_room(store: Store) -> None:
    spec = QuotaSpec(limit=3, max_keys=3, within=10)
    for number in range(20):
        at = number * 5
        quota = store.quotas.open(QuotaKey("b", f"p\x1f{number}", "p"), spec)
        assert try_charge(store, quota, at=at), number
    remaining = [store.quotas.open(QuotaKey("b", f"p\x1f{n}", "p"), spec) for n in (0, 18, 19)]
    assert [usage_at(store, quota, 96) for quota in remaining] == [0, 1, 1]


def test_keys_that_have_not_expired_keep_their_usage(store: Store) -> None:
    spec = QuotaSpec(limit=3, max_keys=2, within=10)
    first, second, third = (
        store.quotas.open(QuotaKey("b", f"p\x1f{number}", "p"), spec) for number in range(3)
    )
    assert try_charge(store, first, at=1)
    assert try_charge(store, second, at=5)
    assert not try_charge(store, third, at=8)
    assert usage_at(store, first, 8) == usage_at(store, second, 8) == 1


def test_a_raised_key_keeps_its_place(store: Store) -> None:
    spec = QuotaSpec(limit=3, max_keys=1, within=10)
    first, second = (
        store.quotas.open(QuotaKey("b", f"p\x1f{number}", "p"), spec) for number in range(2)
    )
    store.quotas.grant(first.key, 2)
    assert try_charge(store, first, at=1)
    assert not try_charge(store, second, at=50)
    assert [try_charge(store, first, at=51) for _ in range(6)] == [True] * 5 + [False]


def test_what_a_clock_that_is_behind_has_seen_counts_for_a_window(store: Store) -> None:
    spec = QuotaSpec(limit=3, max_keys=1, within=10)
    first, second = (
        store.quotas.open(QuotaKey("b", f"p\x1f{number}", "p"), spec) for number in range(2)
    )
    assert [try_charge(store, first, at=at) for at in (100, 5, 8)] == [True] * 3
    assert [try_charge(store, second, at=at) for at in (16, 17, 18)] == [False, False, True]


def test_the_last_key_that_fits_is_not_one_too_many(store: Store) -> None:
    spec = QuotaSpec(limit=3, max_keys=1)
    first, second = (
        store.quotas.open(QuotaKey("b", f"p\x1f{number}", "p"), spec) for number in range(2)
    )
    assert try_charge(store, first)
    assert not try_charge(store, second)
    assert (first.keys_when_full, second.keys_when_full) == (0, 1)
    store.quotas.close([first])
    store.quotas.reset(first.key, spec)
    assert try_charge(store, store.quotas.open(second.key, spec))
    store.quotas.refresh([second], 1)
    assert second.keys_when_full == 0, "another holder has made it"


def test_a_reset_key_of_which_something_is_reserved_keeps_its_place(store: Store) -> None:
    spec = QuotaSpec(limit=3, max_keys=1, reserves=True)
    first, second = (
        store.quotas.open(QuotaKey("b", f"p\x1f{number}", "p"), spec) for number in range(2)
    )
    assert try_charge(store, first)
    store.quotas.reset(first.key, spec)
    assert store.quotas.keys() == [first.key]
    assert not try_charge(store, second)


def test_a_key_makes_no_room_while_something_is_reserved(store: Store) -> None:
    spec = QuotaSpec(limit=3, max_keys=1, within=10, reserves=True)
    first, second = (
        store.quotas.open(QuotaKey("b", f"p\x1f{number}", "p"), spec) for number in range(2)
    )
    first.charge(1, 1)
    first.reserve(1)
    assert not store.quotas.try_charge_all([(first, 1), (second, 4)], 50)
    assert usage_at(store, first, 50) == 1
