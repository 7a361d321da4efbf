"""Quotas: all holders together can charge exactly the limit."""

from __future__ import annotations

import gc
import os
import stat
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from policyguard.model.amounts import SCALE
from policyguard.store.errors import StoreError
from policyguard.store.memory.store import MemoryStore
from policyguard.store.protocol import Caps, Store
from policyguard.store.quota.handle import LeasedQuota
from policyguard.store.quota.lease import COUNT, ID, RESERVED, USED
from policyguard.store.quota.protocol import QuotaKey, QuotaSpec
from policyguard.store.sqlite.database import Database
from policyguard.store.sqlite.schema import APPLICATION_ID, MIGRATIONS
from policyguard.store.sqlite.store import SqliteStore
from tests.examples import examples

CAPS = Caps(constraints=4, grants=4, evidence=4, anchors=4)
NAME = QuotaKey("b", "p", "p")


@pytest.fixture(params=["memory", "sqlite"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    created: Store = (
        MemoryStore(caps=CAPS)
        if request.param == "memory"
        else SqliteStore(tmp_path / "state" / "store.db", caps=CAPS)
    )
    yield created
    created.close()


def try_charge(store: Store, quota: LeasedQuota, amount: int = 1, at: int = 1) -> bool:
    return quota.try_charge(amount, at) or store.quotas.try_charge_all([(quota, amount)], at)


def drain(store: Store, quota: LeasedQuota, at: int = 1) -> int:
    """Charge single units until the limit; return their number."""
    count = 0
    while try_charge(store, quota, at=at):
        count += 1
    return count


def die(store: SqliteStore) -> None:
    """Imitate the death of its process: free its lock and do nothing else."""
    store.quotas._backend.release_holder()
    store._database.close()


def usage_at(store: Store, quota: LeasedQuota, at: int = 1) -> int:
    store.quotas.refresh([quota], at, settle=True)
    return quota.usage.used_at(at, quota.spec.within)


def open_quotas(
    store: Store, number: int, spec: QuotaSpec, name: QuotaKey = NAME
) -> list[LeasedQuota]:
    return [store.quotas.open(name, spec) for _ in range(number)]


def test_all_holders_together_charge_the_limit(store: Store) -> None:
    quotas = open_quotas(store, 5, QuotaSpec(limit=1000))
    charged = 0
    while all([try_charge(store, quota) for quota in quotas]):  # noqa: C419 - each of them charges
        charged += 1
    assert sum(drain(store, quota) for quota in quotas) == 0
    assert usage_at(store, quotas[0]) == 1000
    assert charged == 200


def test_most_charges_need_no_transaction(store: Store) -> None:
    one, two = open_quotas(store, 2, QuotaSpec(limit=100_000))
    transactions = 0
    for _ in range(50_000):
        for quota in (one, two):
            if not quota.try_charge(1, 1):
                transactions += 1
                assert store.quotas.try_charge_all([(quota, 1)], 1)
    assert transactions < 100


def test_an_idle_lease_is_reclaimed(store: Store) -> None:
    sleeper, other = open_quotas(store, 2, QuotaSpec(limit=1000))
    used = sum(try_charge(store, sleeper) for _ in range(3))
    assert sleeper.has_room(100)
    assert drain(store, other) == 1000 - used
    assert not sleeper.try_charge(1, 1)
    assert drain(store, sleeper) == 0
    other.charge(-7, 1)
    assert drain(store, sleeper) == 7


def test_a_first_charge_takes_no_lease(store: Store) -> None:
    (quota,) = open_quotas(store, 1, QuotaSpec(limit=1000))
    assert try_charge(store, quota)
    assert not quota.has_room(1)
    assert try_charge(store, quota)
    assert quota.has_room(100)


def test_a_lease_whose_log_is_full_has_no_room(store: Store) -> None:
    (quota,) = open_quotas(store, 1, QuotaSpec(limit=10**9, within=10))
    assert all(try_charge(store, quota) for _ in range(5))
    while quota.has_room(1):
        assert quota.try_charge(1, 1)
    assert quota.used < quota.ceiling
    assert not quota.try_charge(1, 1)
    assert store.quotas.try_charge_all([(quota, 1)], 1)
    assert quota.has_room(1)


def test_unconditional_charges_come_to_use_a_lease(store: Store) -> None:
    (quota,) = open_quotas(store, 1, QuotaSpec(limit=0))
    for _ in range(3):
        quota.charge(1, 1)
    assert quota.words is not None
    assert usage_at(store, quota) == 3


def test_a_view_has_the_time_of_what_others_have_drawn(store: Store) -> None:
    one, two = open_quotas(store, 2, QuotaSpec(limit=1000, within=10))
    for at in (1, 2, 3):
        assert try_charge(store, one, at=at)
    store.quotas.refresh([two], 9)
    assert [two.usage.used_at(at, 10) for at in (9, 11, 12, 13)] == [3, 2, 1, 0]


def test_usage_in_leases_is_known_before_it_is_settled(store: Store) -> None:
    one, two = open_quotas(store, 2, QuotaSpec(limit=1000, within=10))
    for _ in range(5):
        assert try_charge(store, one)
    assert one.count > 0
    store.quotas.refresh([two], 1)
    assert two.usage.used_at(1, 10) == 5


def test_unconditional_charges_leave_the_window_at_their_own_time(store: Store) -> None:
    (quota,) = open_quotas(store, 1, QuotaSpec(limit=1000, within=10))
    for at in (1, 2, 3, 100):
        quota.charge(1, at)
    assert quota.count == 1, "the last one is in the lease"
    assert usage_at(store, quota, at=105) == 1
    assert usage_at(store, quota, at=111) == 0


def test_a_charge_is_all_or_none(store: Store) -> None:
    many = store.quotas.open(QuotaKey("many", "p", "p"), QuotaSpec(limit=100))
    few = store.quotas.open(QuotaKey("few", "p", "p"), QuotaSpec(limit=5))
    slots = store.quotas.open(
        QuotaKey("slots", "p", "p"), QuotaSpec(limit=3, reserves=True, counts_slots=True)
    )
    demands = [(many, 1), (slots, 1), (few, 2)]
    assert [store.quotas.try_charge_all(demands, 1) for _ in range(4)] == [True, True, False, False]
    assert (usage_at(store, many), usage_at(store, few), slots.reserved) == (2, 4, 2)


def test_reservations_end_and_usage_stays(store: Store) -> None:
    spec = QuotaSpec(limit=10, reserves=True)
    one, two = open_quotas(store, 2, spec)
    assert try_charge(store, one, 6)
    assert not try_charge(store, two, 5)
    assert usage_at(store, two) == 6
    one.charge(2, 1)
    one.reserve(-6)
    assert not one.has_reservation
    assert try_charge(store, two, 8)
    assert not try_charge(store, one, 1)
    two.reserve(-8)
    two.charge(20, 1)
    assert usage_at(store, one) == 22
    assert not try_charge(store, one, 1)


def test_a_reservation_beyond_the_limit_counts_for_all(store: Store) -> None:
    """Of a call that only gets advice."""
    one, two = open_quotas(store, 2, QuotaSpec(limit=10, reserves=True))
    one.reserve(12)
    assert usage_at(store, two) == 12
    assert not try_charge(store, two, 1)
    one.reserve(-12)
    assert try_charge(store, two, 10)


def test_slots_count_running_calls(store: Store) -> None:
    one, two = open_quotas(store, 2, QuotaSpec(limit=4 * SCALE, reserves=True, counts_slots=True))
    assert [try_charge(store, quota, SCALE) for quota in (one, one, two, two, one)] == [
        True
    ] * 4 + [False]
    store.quotas.refresh([one], 1)
    assert (one.usage.running, one.usage.used) == (4, 0)
    two.reserve(-SCALE)
    assert try_charge(store, one, SCALE)
    assert not try_charge(store, two, SCALE)


def test_a_grant_is_for_all_holders(store: Store) -> None:
    one, two = open_quotas(store, 2, QuotaSpec(limit=3))
    assert drain(store, one) == 3
    store.quotas.grant(NAME, 4)
    assert drain(store, two) == 4
    store.quotas.refresh([one], 1)
    assert one.usage.granted == 4


def test_a_grant_to_a_scope_is_for_each_of_its_keys(store: Store) -> None:
    spec = QuotaSpec(limit=3)
    one = store.quotas.open(QuotaKey("b", "p\x1fone", "p"), spec)
    two = store.quotas.open(QuotaKey("b", "p\x1ftwo", "p"), spec)
    store.quotas.grant(NAME, 2)
    store.quotas.grant(two.key, 1)
    assert (drain(store, one), drain(store, two)) == (5, 6)
    assert (two.granted, two.usage.granted) == (2, 1)


def test_the_first_charge_starts_the_time_for_all(store: Store) -> None:
    one, two = open_quotas(store, 2, QuotaSpec(limit=0))
    store.quotas.refresh([one], 3)
    assert one.usage.started_at is None
    assert not one.try_charge(0, 5)
    assert store.quotas.try_charge_all([(one, 0)], 5)
    assert one.try_charge(0, 7)
    store.quotas.refresh([two], 9)
    assert two.usage.started_at == 5


def test_a_refund_is_of_the_charge_whoever_made_it(store: Store) -> None:
    one, two = open_quotas(store, 2, QuotaSpec(limit=1000, within=10))
    for quota in (one, two):
        assert [try_charge(store, quota, at=1) for _ in range(3)] == [True] * 3
    assert one.try_charge(5, 3), "in its lease"
    two.charge(-5, 3)
    assert usage_at(store, two, 3) == 6
    assert usage_at(store, one, 10) == 6
    assert usage_at(store, one, 11) == 0
    assert drain(store, two, at=12) == 1000


def test_charges_leave_the_window_whoever_made_them(store: Store) -> None:
    one, two = open_quotas(store, 2, QuotaSpec(limit=100, within=10))
    assert [try_charge(store, one, at=at) for at in (1, 2, 3)] == [True] * 3
    assert drain(store, two, at=5) == 97
    assert drain(store, one, at=10) == 0
    store.quotas.refresh([one], 10, settle=True)
    assert one.usage.fits_at(1, 10, 10) == 11
    assert [drain(store, two, at=at) for at in (11, 12, 13, 14, 15)] == [1, 1, 1, 0, 97]


def test_many_charges_in_a_window_do_not_overflow_the_log(store: Store) -> None:
    one, two = open_quotas(store, 2, QuotaSpec(limit=10_000, within=1000))
    for at in range(500):
        assert try_charge(store, one, at=at)
        if at % 3 == 0:
            one.charge(-1, at)
    assert usage_at(store, two, 999) == 333
    assert usage_at(store, two, 1499) == 0


def test_a_clock_that_runs_backwards_frees_nothing(store: Store) -> None:
    one, two = open_quotas(store, 2, QuotaSpec(limit=10, within=100))
    assert sum(try_charge(store, one, at=1000) for _ in range(4)) == 4
    assert sum(try_charge(store, two, at=1) for _ in range(4)) == 4
    one.charge(1, 5)
    assert usage_at(store, one, 1050) == 9
    assert usage_at(store, one, 1100) == 0


def test_a_charge_of_nothing_needs_no_store(store: Store) -> None:
    (quota,) = open_quotas(store, 1, QuotaSpec(limit=1000, within=10))
    assert all(try_charge(store, quota) for _ in range(5))
    with full_disk(store):
        quota.charge(0, 1)
    assert usage_at(store, quota) == 5


@pytest.mark.parametrize("is_open", [False, True], ids=["closed", "in use"])
def test_a_clock_that_was_ahead_shuts_a_window_for_one_window(
    store: Store, *, is_open: bool
) -> None:
    spec = QuotaSpec(limit=5, within=10)
    wrong = store.quotas.open(NAME, spec)
    assert [try_charge(store, wrong, at=1000 + n) for n in range(2)] == [True] * 2
    if not is_open:
        store.quotas.close([wrong])
    quota = store.quotas.open(NAME, spec)
    assert drain(store, quota, at=1) == 3
    assert drain(store, quota, at=10) == 0
    assert drain(store, quota, at=11) == 5
    assert drain(store, quota, at=20) == 0
    assert drain(store, quota, at=30) == 5


def test_a_clock_that_is_behind_frees_nothing_for_the_others(store: Store) -> None:
    spec = QuotaSpec(limit=5, within=10)
    quota = store.quotas.open(NAME, spec)
    assert drain(store, quota, at=100) == 5
    behind = store.quotas.open(NAME, spec)
    assert drain(store, behind, at=50) == 0
    assert drain(store, behind, at=40) == 0
    assert drain(store, quota, at=101) == 0
    assert drain(store, quota, at=110) == 5


def test_a_closed_quota_returns_its_lease_and_can_be_used_again(store: Store) -> None:
    one, two = open_quotas(store, 2, QuotaSpec(limit=1000))
    assert sum(try_charge(store, one) for _ in range(10)) == 10
    store.quotas.close([one])
    assert one.words is None
    assert usage_at(store, two) == 10
    assert try_charge(store, one)
    one.charge(-1, 1)
    assert drain(store, two) == 990


@pytest.mark.parametrize("amount", [2**63, 10**30, 10**300])
def test_amounts_of_any_size(store: Store, amount: int) -> None:
    one, two = open_quotas(store, 2, QuotaSpec(limit=3 * amount))
    assert [try_charge(store, quota, amount) for quota in (one, two, one, two)] == [True] * 3 + [
        False
    ]
    one.charge(amount, 1)
    one.charge(5, 1)
    one.charge(-amount, 1)
    assert usage_at(store, two) == 3 * amount + 5


def test_a_reservation_too_large_to_count_is_an_error(store: Store) -> None:
    one, two = open_quotas(store, 2, QuotaSpec(limit=10**30, reserves=True))
    assert try_charge(store, one, 5)
    with pytest.raises(OverflowError):
        try_charge(store, one, 10**20)
    assert usage_at(store, two) == 5
    assert try_charge(store, one, 2**62 - 5)
    with pytest.raises(OverflowError):
        try_charge(store, one, 1)
    assert usage_at(store, two) == 2**62


def test_a_reservation_beyond_what_can_be_counted_is_ignored(store: Store) -> None:
    one, two = open_quotas(store, 2, QuotaSpec(limit=10**30, reserves=True))
    one.reserve(2**62 - 1)
    for amount in (2, 2**62, 1, 1):
        one.reserve(amount)
    assert usage_at(store, two) == 2**62
    one.reserve(-(2**62))
    assert usage_at(store, two) == 0


def test_a_failed_charge_of_several_reserves_nothing(store: Store) -> None:
    spec = QuotaSpec(limit=10**30, reserves=True)
    one, two = open_quotas(store, 1, spec)[0], store.quotas.open(QuotaKey("c", "p", "p"), spec)
    assert try_charge(store, one, 5)
    with pytest.raises(OverflowError):
        store.quotas.try_charge_all([(one, 7), (two, 10**20)], 1)
    assert usage_at(store, open_quotas(store, 1, spec)[0]) == 5


def test_threads_with_a_quota_each(store: Store) -> None:
    quotas = open_quotas(store, 8, QuotaSpec(limit=2000))
    start = threading.Barrier(8)
    charged: list[int] = []

    def work(quota: LeasedQuota) -> None:
        start.wait()
        charged.append(sum(try_charge(store, quota) for _ in range(400)))

    threads = [threading.Thread(target=work, args=(quota,)) for quota in quotas]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sum(charged) == 2000
    assert usage_at(store, quotas[0]) == 2000


@pytest.mark.parametrize("text", ["", "a\x00b", "𝕊 'quoted' ; DROP TABLE", "\ud800"])
def test_any_text_is_a_key(store: Store, text: str) -> None:
    quota = store.quotas.open(QuotaKey(text, text, text), QuotaSpec(limit=3))
    assert drain(store, quota) == 3


@contextmanager
def full_disk(store: Store) -> Iterator[None]:
    """Make the store's transactions fail at the commit."""
    backend = store.quotas._backend
    transaction = backend.transaction

    @contextmanager
    def failing(**more: bool) -> Iterator[None]:
        with transaction(**more):
            yield
            raise StoreError(Path("x"), "is full", "make room")

    backend.transaction = failing
    try:
        yield
    finally:
        del backend.transaction


class StoppedWords:
    """Words that call `act` before their holder reads or writes one of them."""

    def __init__(self, words: Any, index: int, act: Callable[[], object], *, reading: bool) -> None:
        self.words, self.index, self.act, self.reading = words, index, act, reading

    def __getitem__(self, index: int) -> int:
        if self.reading:
            self.stop(index)
        return int(self.words[index])

    def __setitem__(self, index: int, value: int) -> None:
        if not self.reading:
            self.stop(index)
        self.words[index] = value

    def stop(self, index: int) -> None:
        if index == self.index:
            act, self.act = self.act, lambda: None
            act()


@pytest.mark.parametrize("within", [None, 10])
@pytest.mark.parametrize("reserves", [False, True])
@pytest.mark.parametrize("point", ["id", "before", "count"])
def test_a_holder_stopped_in_the_middle_of_a_charge(
    store: Store, point: str, reserves: bool, within: int | None
) -> None:
    """Meanwhile another holder charges the rest, to the last unit."""
    stopped, other = open_quotas(store, 2, QuotaSpec(limit=100, reserves=reserves, within=within))
    assert try_charge(store, stopped)
    assert try_charge(store, stopped)
    assert stopped.has_room(5)
    charged: list[int] = []
    word = RESERVED if reserves else COUNT if within is not None else USED
    if point == "count" and word != COUNT:
        pytest.skip("only a window counts its charges")
    stopped.words = StoppedWords(  # type: ignore[assignment]  # the same words, with a stop
        stopped.words,
        ID if point == "id" else word,
        lambda: charged.append(drain(store, other)),
        reading=point == "id",
    )
    more = int(try_charge(store, stopped)) + drain(store, stopped)
    assert charged[0] >= 97
    assert 2 + charged[0] + more == 100
    assert drain(store, other) == 0
    assert usage_at(store, other) == 100


def test_a_failed_transaction_changes_nothing(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "store.db", caps=CAPS, timeout=0.05)
    other = SqliteStore(tmp_path / "store.db", caps=CAPS)
    one, slots = (
        open_quotas(store, 1, QuotaSpec(limit=100))[0],
        store.quotas.open(
            QuotaKey("slots", "p", "p"), QuotaSpec(limit=100, reserves=True, counts_slots=True)
        ),
    )
    two = other.quotas.open(NAME, one.spec)
    assert try_charge(store, one)
    assert try_charge(store, one)
    assert try_charge(store, slots)
    unused = one.ceiling - one.used
    with other.transaction():
        for _ in range(unused):
            assert one.try_charge(1, 1), "a lease needs no store"
        with pytest.raises(StoreError, match="locked"):
            store.quotas.try_charge_all([(slots, 1), (one, 1)], 1)
        one.charge(1, 1)
        with pytest.raises(StoreError):
            try_charge(store, one)
    assert usage_at(other, two) == 2 + unused + 1
    assert slots.reserved == 1
    assert store.quotas.try_charge_all([(slots, 1), (one, 1)], 1)
    assert slots.reserved == 2
    assert drain(other, two) == 100 - 2 - unused - 1 - 1


def test_a_holder_without_an_answer_charges_nothing_that_was_reclaimed(store: Store) -> None:
    one, two = open_quotas(store, 2, QuotaSpec(limit=100))
    assert try_charge(store, one)
    assert try_charge(store, one)
    assert one.has_room(20)
    assert drain(store, two) == 98
    with full_disk(store), pytest.raises(StoreError):
        try_charge(store, one, 90)
    assert not one.try_charge(1, 1)
    assert drain(store, one) == 0


def test_a_fenced_holder_takes_a_lease_again(store: Store) -> None:
    one, two = open_quotas(store, 2, QuotaSpec(limit=100))
    assert try_charge(store, one)
    assert try_charge(store, one)
    assert drain(store, two) == 98
    store.quotas.grant(NAME, 1000)
    assert try_charge(store, one)
    assert all(one.try_charge(1, 1) for _ in range(100))


def test_the_words_of_the_dead_stay_until_they_are_settled(tmp_path: Path) -> None:
    """A holder that reclaims their slot and fails must not overwrite them."""
    path = tmp_path / "store.db"
    store, late = SqliteStore(path, caps=CAPS), SqliteStore(path, caps=CAPS)
    (dead,), (heir,) = (
        open_quotas(store, 1, QuotaSpec(limit=100)),
        open_quotas(late, 1, QuotaSpec(limit=100)),
    )
    assert sum(try_charge(store, dead) for _ in range(10)) == 10
    assert try_charge(late, heir)
    die(store)
    with full_disk(late), pytest.raises(StoreError):
        try_charge(late, heir)
    assert drain(late, heir) == 100 - 11


@pytest.mark.parametrize("amount", [1, 40])
def test_what_the_dead_have_reserved_is_free(tmp_path: Path, amount: int) -> None:
    spec = QuotaSpec(limit=100, reserves=True)
    store, late = (SqliteStore(tmp_path / "store.db", caps=CAPS) for _ in range(2))
    (dead,), (quota,) = open_quotas(store, 1, spec), open_quotas(late, 1, spec)
    assert try_charge(store, dead, amount)
    assert usage_at(late, quota) == amount
    die(store)
    assert usage_at(late, quota) == 0


def test_the_dead_leave_no_leases_and_no_slots(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    for _ in range(30):
        store = SqliteStore(path, caps=CAPS)
        for name in ("one", "two"):
            quota = store.quotas.open(QuotaKey(name, "p", "p"), QuotaSpec(limit=10_000))
            assert sum(try_charge(store, quota) for _ in range(3)) == 3
        die(store)
    late = SqliteStore(path, caps=CAPS)
    (count,) = late._database.execute("SELECT count(*), max(slot) FROM shares")
    assert count[0] <= 2
    assert count[1] <= 3
    one = late.quotas.open(QuotaKey("one", "p", "p"), QuotaSpec(limit=10_000))
    assert drain(late, one) == 10_000 - 90


def test_a_garbage_collected_store_reserves_nothing(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    spec = QuotaSpec(limit=SCALE, reserves=True, counts_slots=True)
    store, late = SqliteStore(path, caps=CAPS), SqliteStore(path, caps=CAPS)
    (dropped,), (other,) = open_quotas(store, 1, spec), open_quotas(late, 1, spec)
    assert try_charge(store, dropped, SCALE)
    assert not try_charge(late, other, SCALE)
    del store, dropped
    gc.collect()
    assert try_charge(late, other, SCALE)


def test_a_single_charge_leaves_no_lease(tmp_path: Path) -> None:
    """A command started for each call takes one transaction and no lease."""
    path = tmp_path / "store.db"
    for _ in range(3):
        store = SqliteStore(path, caps=CAPS)
        (quota,) = open_quotas(store, 1, QuotaSpec(limit=100))
        assert try_charge(store, quota)
        assert store._database.execute("SELECT * FROM shares") == []
    assert not path.with_name("store.db.purses").exists()


def test_leases_of_more_keys_than_one_mapping_holds(tmp_path: Path) -> None:
    """The file of leases is mapped in parts."""
    one, other = (SqliteStore(tmp_path / "store.db", caps=CAPS) for _ in range(2))
    spec, names = QuotaSpec(limit=100), [QuotaKey("b", f"p{n}", f"p{n}") for n in range(520)]
    for name in names:
        (quota,) = open_quotas(one, 1, spec, name)
        assert [try_charge(one, quota) for _ in range(3)] == [True] * 3
    for name in names:
        (quota,) = open_quotas(other, 1, spec, name)
        assert usage_at(other, quota) == 3


def test_the_file_of_leases_is_private(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        store = SqliteStore(tmp_path / "store.db", caps=CAPS)
        (quota,) = open_quotas(store, 1, QuotaSpec(limit=100))
        assert sum(try_charge(store, quota) for _ in range(2)) == 2
    finally:
        os.umask(before)
    mode = (tmp_path / "store.db.purses").stat().st_mode
    assert stat.S_IMODE(mode) == 0o600


def test_a_store_with_an_older_schema_is_migrated(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    first = Database(path, application_id=APPLICATION_ID, migrations=MIGRATIONS[:1], timeout=1)
    first.execute("INSERT INTO evidence (scope, key, payload, used) VALUES ('p', 'k', x'31', 1)")
    first.close()
    store = SqliteStore(path, caps=CAPS)
    (quota,) = open_quotas(store, 1, QuotaSpec(limit=5))
    assert drain(store, quota) == 5
    assert store.evidence.get("p", "k") == b"1"


@pytest.mark.parametrize("loss", ["gone", "emptied", "cut"])
@pytest.mark.parametrize("charged", [3, 60, 100])
def test_leases_count_in_full_if_their_file_is_lost(
    tmp_path: Path, loss: str, charged: int
) -> None:
    """Of 60 the first ones are in the store already, of 100 all."""
    store = SqliteStore(tmp_path / "store.db", caps=CAPS)
    (quota,) = open_quotas(store, 1, QuotaSpec(limit=100))
    asked = 0
    for _ in range(charged):
        if not quota.try_charge(1, 1):
            assert store.quotas.try_charge_all([(quota, 1)], 1)
            asked += 1
    taken = asked + quota.ceiling
    assert charged <= taken <= 100
    die(store)
    file = tmp_path / "store.db.purses"
    size = file.stat().st_size
    file.unlink()
    if loss != "gone":
        file.write_bytes(bytes(size if loss == "emptied" else 0))
    late = SqliteStore(tmp_path / "store.db", caps=CAPS)
    (other,) = open_quotas(late, 1, QuotaSpec(limit=100))
    assert usage_at(late, other) == taken
    assert drain(late, other) == 100 - taken
    assert usage_at(late, other) == 100


def test_reservations_count_as_used_if_their_file_is_lost(tmp_path: Path) -> None:
    """Of a first call, which takes a lease for no more than that."""
    spec = QuotaSpec(limit=100, reserves=True)
    store = SqliteStore(tmp_path / "store.db", caps=CAPS)
    (quota,) = open_quotas(store, 1, spec)
    assert try_charge(store, quota, 40)
    die(store)
    (tmp_path / "store.db.purses").unlink()
    late = SqliteStore(tmp_path / "store.db", caps=CAPS)
    (other,) = open_quotas(late, 1, spec)
    assert not try_charge(late, other, 61)
    assert try_charge(late, other, 60)


def test_after_a_power_loss_leases_count_in_full(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file of leases may then be older than the database: the usage is unknown."""
    for sync, left in ((False, 99), (True, 50)):
        path = tmp_path / str(sync) / "store.db"
        store = SqliteStore(path, caps=CAPS, sync=sync)
        (quota,) = open_quotas(store, 1, QuotaSpec(limit=102))
        assert sum(try_charge(store, quota) for _ in range(3)) == 3
        slots = store.quotas.open(
            QuotaKey("o", "p", "p"), QuotaSpec(limit=1, reserves=True, counts_slots=True)
        )
        assert try_charge(store, slots)
        die(store)
        with monkeypatch.context() as patch:
            patch.setattr("policyguard.store.quota.sqlite.read_boot_id", lambda: "another")
            late = SqliteStore(path, caps=CAPS, sync=sync)
            (other,) = open_quotas(late, 1, QuotaSpec(limit=102))
        assert drain(late, other) == left
        slots = late.quotas.open(
            QuotaKey("o", "p", "p"), QuotaSpec(limit=1, reserves=True, counts_slots=True)
        )
        assert try_charge(late, slots), "no slot is taken after a reboot"


def test_with_sync_charges_go_to_the_database_at_once(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "store.db", caps=CAPS, sync=True)
    (quota,) = open_quotas(store, 1, QuotaSpec(limit=10, reserves=True))
    assert try_charge(store, quota, 5)
    quota.charge(3, 1)
    assert quota.words is not None
    assert quota.words[USED] == 0
    assert usage_at(store, quota) == 8


class Processes:
    """Stores on one file, each with its own leases like a process, and a model of the truth.

    `has_forced`: something was charged beyond the limit. From then on others may still charge their
    leases, until they refresh (docs/decisions/0011, "What is exact").
    """

    def __init__(self, path: Path, spec: QuotaSpec) -> None:
        self.path, self.spec = path, spec
        self.used: list[tuple[int, int]] = []
        self.stores: dict[int, SqliteStore] = {}
        self.quotas: dict[int, LeasedQuota] = {}
        self.reserved: dict[int, int] = {}
        self.has_forced = False

    def quota(self, process: int) -> LeasedQuota:
        if process not in self.stores:
            self.stores[process] = SqliteStore(self.path, caps=CAPS)
            self.quotas[process] = self.stores[process].quotas.open(NAME, self.spec)
            self.reserved[process] = 0
        return self.quotas[process]

    def total(self, at: int) -> int:
        within = self.spec.within
        return sum(self.reserved.values()) + sum(
            amount for charged, amount in self.used if within is None or charged > at - within
        )

    def charge(self, process: int, amount: int, at: int) -> None:
        quota = self.quota(process)
        fits = self.total(at) + amount <= self.spec.limit
        charged = try_charge(self.stores[process], quota, amount, at)
        assert charged == fits or (charged and self.has_forced), (self.total(at), amount)
        if charged and self.spec.reserves:
            self.reserved[process] += amount
        elif charged:
            self.used.append((at, amount))

    def fail(self, process: int, amount: int, at: int) -> None:
        """Let the commit fail: only a holder with a lease may charge."""
        quota = self.quota(process)
        fits = self.total(at) + amount <= self.spec.limit
        charged = False
        with suppress(StoreError), full_disk(self.stores[process]):
            charged = try_charge(self.stores[process], quota, amount, at)
        assert fits or not charged or self.has_forced
        if charged and self.spec.reserves:
            self.reserved[process] += amount
        elif charged:
            self.used.append((at, amount))

    def finish(self, process: int, amount: int, at: int) -> None:
        quota = self.quota(process)
        quota.charge(amount, at)
        self.used.append((at, amount))
        quota.reserve(-self.reserved[process])
        self.reserved[process] = 0
        self.has_forced = True

    def refund(self, process: int, which: int) -> None:
        if self.used:
            charged, amount = self.used.pop(which % len(self.used))
            self.quota(process).charge(-amount, charged)

    def die(self, process: int) -> None:
        self.quota(process)
        die(self.stores.pop(process))
        self.quotas.pop(process)
        self.reserved.pop(process)

    def close(self, process: int) -> None:
        self.quota(process)
        self.stores[process].close()


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["charge"] * 8 + ["fail", "finish", "refund", "die", "close", "refresh"]),
        st.integers(0, 3),
        st.integers(1, 9),
    ),
    max_size=60,
)


@settings(
    max_examples=examples(100, 8), deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
@given(STEPS, st.sampled_from([None, 20, 60]), st.booleans(), st.integers(0, 120), st.booleans())
@example(  # a refund that the store counts before its charge
    [("charge", 0, 1)] * 18 + [("refund", 1, 2), ("charge", 0, 1)], 20, False, 34, True
)
def test_processes_that_come_go_and_die_charge_as_one_would(
    steps: list[tuple[str, int, int]],
    within: int | None,
    reserves: bool,
    limit: int,
    never_forced: bool,
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        spec = QuotaSpec(limit=limit, within=within, reserves=reserves)
        processes = Processes(Path(folder) / "state" / "store.db", spec)
        for at, (step, process, number) in enumerate(steps):
            match step:
                case "charge":
                    processes.charge(process, number, at)
                case "fail":
                    processes.fail(process, number, at)
                case "finish" if not never_forced:
                    processes.finish(process, number, at)
                case "refund":
                    processes.refund(process, number)
                case "refresh":
                    quota = processes.quota(process)
                    assert usage_at(processes.stores[process], quota, at) == processes.total(at)
                case "die":
                    processes.die(process)
                case "close":
                    processes.close(process)
        end = len(steps)
        quota = processes.quota(9)
        assert usage_at(processes.stores[9], quota, end) == processes.total(end)
        assert drain(processes.stores[9], quota, end) == max(0, limit - processes.total(end))


def test_a_closed_store_is_no_holder(tmp_path: Path) -> None:
    store, other = (SqliteStore(tmp_path / "store.db", caps=CAPS) for _ in range(2))
    (quota,) = open_quotas(store, 1, QuotaSpec(limit=100, reserves=True))
    assert try_charge(store, quota)
    holder = store.quotas._backend.holder_id()
    store.quotas.close()
    assert other.quotas._backend.is_alive(holder), "it reserves something"
    quota.reserve(-1)
    store.quotas.close()
    assert not other.quotas._backend.is_alive(holder)
