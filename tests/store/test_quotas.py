"""Purses: what all holders together may draw is the limit, neither more nor less."""

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
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from policyguard.model.amounts import SCALE
from policyguard.store.errors import StoreError
from policyguard.store.memory.store import MemoryStore
from policyguard.store.protocol import Caps, QuotaKey, QuotaSpec, Store
from policyguard.store.quota.handle import LeasedQuota
from policyguard.store.quota.lease import COUNT, ID, RESERVED, USED
from policyguard.store.sqlite.database import Database
from policyguard.store.sqlite.schema import APPLICATION_ID, MIGRATIONS
from policyguard.store.sqlite.store import SqliteStore

CAPS = Caps(constraints=4, evidence=4, anchors=4)
NAME = QuotaKey("b", "p", "p")


@pytest.fixture(params=["memory", "sqlite"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    made: Store = (
        MemoryStore(caps=CAPS)
        if request.param == "memory"
        else SqliteStore(tmp_path / "state" / "store.db", caps=CAPS)
    )
    yield made
    made.close()


def draw(store: Store, purse: LeasedQuota, amount: int = 1, at: int = 1) -> bool:
    return purse.try_charge(amount, at) or store.quotas.try_charge_all([(purse, amount)], at)


def drain(store: Store, purse: LeasedQuota, at: int = 1) -> int:
    """How many more there are."""
    count = 0
    while draw(store, purse, at=at):
        count += 1
    return count


def die(store: SqliteStore) -> None:
    """As the death of its process would: its lock is free, and nothing else is done."""
    store.quotas._backend.release_holder()
    store._database.close()


def seen(store: Store, purse: LeasedQuota, at: int = 1) -> int:
    store.quotas.refresh([purse], at, settle=True)
    return purse.usage.used_at(at, purse.spec.within)


def hands(store: Store, number: int, terms: QuotaSpec, name: QuotaKey = NAME) -> list[LeasedQuota]:
    return [store.quotas.open(name, terms) for _ in range(number)]


def test_all_holders_together_draw_the_limit(store: Store) -> None:
    purses = hands(store, 5, QuotaSpec(limit=1000))
    drawn = 0
    while all([draw(store, purse) for purse in purses]):  # noqa: C419 - all of them draw
        drawn += 1
    assert sum(drain(store, purse) for purse in purses) == 0
    assert seen(store, purses[0]) == 1000
    assert drawn == 200


def test_most_draws_ask_nobody(store: Store) -> None:
    one, two = hands(store, 2, QuotaSpec(limit=100_000))
    asked = 0
    for _ in range(50_000):
        for purse in (one, two):
            if not purse.try_charge(1, 1):
                asked += 1
                assert store.quotas.try_charge_all([(purse, 1)], 1)
    assert asked < 100


def test_what_a_sleeper_has_on_lease_is_taken_back(store: Store) -> None:
    sleeper, other = hands(store, 2, QuotaSpec(limit=1000))
    used = sum(draw(store, sleeper) for _ in range(3))
    assert sleeper.has_room(100)
    assert drain(store, other) == 1000 - used
    assert not sleeper.try_charge(1, 1)
    assert drain(store, sleeper) == 0
    other.charge(-7, 1)
    assert drain(store, sleeper) == 7


def test_a_first_draw_takes_no_lease(store: Store) -> None:
    (purse,) = hands(store, 1, QuotaSpec(limit=1000))
    assert draw(store, purse)
    assert not purse.has_room(1)
    assert draw(store, purse)
    assert purse.has_room(100)


def test_what_is_only_spent_comes_to_cost_nothing_either(store: Store) -> None:
    (purse,) = hands(store, 1, QuotaSpec(limit=0))
    for _ in range(3):
        purse.charge(1, 1)
    assert purse.words is not None
    assert seen(store, purse) == 3


def test_a_draw_is_all_or_none(store: Store) -> None:
    many = store.quotas.open(QuotaKey("many", "p", "p"), QuotaSpec(limit=100))
    few = store.quotas.open(QuotaKey("few", "p", "p"), QuotaSpec(limit=5))
    places = store.quotas.open(
        QuotaKey("places", "p", "p"), QuotaSpec(limit=3, reserves=True, counts_slots=True)
    )
    demands = [(many, 1), (places, 1), (few, 2)]
    assert [store.quotas.try_charge_all(demands, 1) for _ in range(4)] == [True, True, False, False]
    assert (seen(store, many), seen(store, few), places.held) == (2, 4, 2)


def test_what_is_held_comes_back_and_what_is_used_does_not(store: Store) -> None:
    terms = QuotaSpec(limit=10, reserves=True)
    one, two = hands(store, 2, terms)
    assert draw(store, one, 6)
    assert not draw(store, two, 5)
    assert seen(store, two) == 6
    one.charge(2, 1)
    one.reserve(-6)
    assert not one.has_reservation
    assert draw(store, two, 8)
    assert not draw(store, one, 1)
    two.reserve(-8)
    two.charge(20, 1)
    assert seen(store, one) == 22
    assert not draw(store, one, 1)


def test_places_are_what_is_open(store: Store) -> None:
    one, two = hands(store, 2, QuotaSpec(limit=4 * SCALE, reserves=True, counts_slots=True))
    assert [draw(store, purse, SCALE) for purse in (one, one, two, two, one)] == [True] * 4 + [
        False
    ]
    store.quotas.refresh([one], 1)
    assert (one.usage.running, one.usage.used) == (4, 0)
    two.reserve(-SCALE)
    assert draw(store, one, SCALE)
    assert not draw(store, two, SCALE)


def test_a_grant_is_for_everybody(store: Store) -> None:
    one, two = hands(store, 2, QuotaSpec(limit=3))
    assert drain(store, one) == 3
    store.quotas.grant(NAME, 4)
    assert drain(store, two) == 4
    store.quotas.refresh([one], 1)
    assert one.usage.granted == 4


def test_a_grant_to_a_scope_is_for_each_of_its_keys(store: Store) -> None:
    terms = QuotaSpec(limit=3)
    one = store.quotas.open(QuotaKey("b", "p\x1fone", "p"), terms)
    two = store.quotas.open(QuotaKey("b", "p\x1ftwo", "p"), terms)
    store.quotas.grant(NAME, 2)
    store.quotas.grant(two.name, 1)
    assert (drain(store, one), drain(store, two)) == (5, 6)
    assert (two.granted, two.usage.granted) == (2, 1)


def test_the_first_draw_begins_the_time_for_all(store: Store) -> None:
    one, two = hands(store, 2, QuotaSpec(limit=0))
    store.quotas.refresh([one], 3)
    assert one.usage.started_at is None
    assert not one.try_charge(0, 5)
    assert store.quotas.try_charge_all([(one, 0)], 5)
    assert one.try_charge(0, 7)
    store.quotas.refresh([two], 9)
    assert two.usage.started_at == 5


def test_a_window_gives_free_what_has_left_it_whoever_drew_it(store: Store) -> None:
    one, two = hands(store, 2, QuotaSpec(limit=100, within=10))
    assert [draw(store, one, at=at) for at in (1, 2, 3)] == [True] * 3
    assert drain(store, two, at=5) == 97
    assert drain(store, one, at=10) == 0
    store.quotas.refresh([one], 10, settle=True)
    assert one.usage.fits_at(1, 10) == 11
    assert [drain(store, two, at=at) for at in (11, 12, 13, 14, 15)] == [1, 1, 1, 0, 97]


def test_many_draws_in_a_window_do_not_run_over_the_lease(store: Store) -> None:
    one, two = hands(store, 2, QuotaSpec(limit=10_000, within=1000))
    for at in range(500):
        assert draw(store, one, at=at)
        if at % 3 == 0:
            one.charge(-1, at)
    assert seen(store, two, 999) == 333
    assert seen(store, two, 1499) == 0


def test_a_clock_that_runs_backwards_frees_nothing(store: Store) -> None:
    one, two = hands(store, 2, QuotaSpec(limit=10, within=100))
    assert sum(draw(store, one, at=1000) for _ in range(4)) == 4
    assert sum(draw(store, two, at=1) for _ in range(4)) == 4
    assert seen(store, one, 1050) == 8
    assert seen(store, one, 1100) == 0


def test_a_budget_with_too_many_keys_takes_no_more(store: Store) -> None:
    terms = QuotaSpec(limit=3, max_keys=3)
    purses = [store.quotas.open(QuotaKey("b", f"p\x1f{n}", "p"), terms) for n in range(4)]
    assert [draw(store, purse) for purse in purses] == [True, True, True, False]
    assert (purses[3].keys_when_full, purses[0].keys_when_full) == (3, 0)
    store.quotas.refresh([purses[3]], 1)
    assert purses[3].keys_when_full == 3
    assert draw(store, store.quotas.open(NAME, terms)), "a scope is the host's, not the agent's"
    assert draw(store, purses[0])


def test_keys_whose_window_is_over_make_room(store: Store) -> None:
    terms = QuotaSpec(limit=3, max_keys=3, within=10)
    for number in range(20):
        at = number * 5
        purse = store.quotas.open(QuotaKey("b", f"p\x1f{number}", "p"), terms)
        assert draw(store, purse, at=at), number
    kept = [store.quotas.open(QuotaKey("b", f"p\x1f{n}", "p"), terms) for n in (0, 18, 19)]
    assert [seen(store, purse, 96) for purse in kept] == [0, 1, 1]


def test_what_is_closed_is_given_back_and_may_be_used_again(store: Store) -> None:
    one, two = hands(store, 2, QuotaSpec(limit=1000))
    assert sum(draw(store, one) for _ in range(10)) == 10
    store.quotas.close([one])
    assert one.words is None
    assert seen(store, two) == 10
    assert draw(store, one)
    one.charge(-1, 1)
    assert drain(store, two) == 990


@pytest.mark.parametrize("amount", [2**63, 10**30, 10**300])
def test_amounts_of_any_size(store: Store, amount: int) -> None:
    one, two = hands(store, 2, QuotaSpec(limit=3 * amount))
    assert [draw(store, purse, amount) for purse in (one, two, one, two)] == [True] * 3 + [False]
    one.charge(amount, 1)
    one.charge(5, 1)
    one.charge(-amount, 1)
    assert seen(store, two) == 3 * amount + 5


def test_more_than_can_be_held_is_an_error_and_holds_nothing(store: Store) -> None:
    one, two = hands(store, 2, QuotaSpec(limit=10**30, reserves=True))
    assert draw(store, one, 5)
    with pytest.raises(OverflowError):
        draw(store, one, 10**20)
    assert seen(store, two) == 5
    assert draw(store, one, 5)
    assert seen(store, two) == 10


def test_threads_with_a_purse_each(store: Store) -> None:
    purses = hands(store, 8, QuotaSpec(limit=2000))
    start = threading.Barrier(8)
    drawn: list[int] = []

    def work(purse: LeasedQuota) -> None:
        start.wait()
        drawn.append(sum(draw(store, purse) for _ in range(400)))

    threads = [threading.Thread(target=work, args=(purse,)) for purse in purses]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sum(drawn) == 2000
    assert seen(store, purses[0]) == 2000


@pytest.mark.parametrize("text", ["", "a\x00b", "𝕊 'quoted' ; DROP TABLE", "\ud800"])
def test_any_text_is_a_name(store: Store, text: str) -> None:
    purse = store.quotas.open(QuotaKey(text, text, text), QuotaSpec(limit=3))
    assert drain(store, purse) == 3


@contextmanager
def without_room(store: Store) -> Iterator[None]:
    """The store's transactions fail when all has been written."""
    ledger = store.quotas._ledger
    transaction = ledger.transaction

    @contextmanager
    def failing(**more: bool) -> Iterator[None]:
        with transaction(**more):
            yield
            raise StoreError(Path("x"), "is full", "make room")

    ledger.transaction = failing
    try:
        yield
    finally:
        del ledger.transaction


class Stopped:
    """Words whose holder is stopped before it reads or writes one of them, while others go on."""

    def __init__(self, words: Any, place: int, act: Callable[[], object], *, reading: bool) -> None:
        self.words, self.place, self.act, self.reading = words, place, act, reading

    def __getitem__(self, place: int) -> int:
        if self.reading:
            self.stop(place)
        return int(self.words[place])

    def __setitem__(self, place: int, value: int) -> None:
        if not self.reading:
            self.stop(place)
        self.words[place] = value

    def stop(self, place: int) -> None:
        if place == self.place:
            act, self.act = self.act, lambda: None
            act()


@pytest.mark.parametrize("within", [None, 10])
@pytest.mark.parametrize("held", [False, True])
@pytest.mark.parametrize("place", ["id", "before", "count"])
def test_who_is_stopped_in_the_middle_of_a_draw(
    store: Store, place: str, held: bool, within: int | None
) -> None:
    """Stopped for long: all others do meanwhile is to draw what is left, to the last unit."""
    stopped, other = hands(store, 2, QuotaSpec(limit=100, reserves=held, within=within))
    assert draw(store, stopped)
    assert draw(store, stopped)
    assert stopped.has_room(5)
    drawn: list[int] = []
    word = RESERVED if held else COUNT if within is not None else USED
    if place == "count" and word != COUNT:
        pytest.skip("only draws in a window are counted")
    stopped.words = Stopped(  # type: ignore[assignment] - the same words, with stops between them
        stopped.words,
        ID if place == "id" else word,
        lambda: drawn.append(drain(store, other)),
        reading=place == "id",
    )
    more = int(draw(store, stopped)) + drain(store, stopped)
    assert drawn[0] >= 97
    assert 2 + drawn[0] + more == 100
    assert drain(store, other) == 0
    assert seen(store, other) == 100


def test_a_store_that_fails_in_the_middle_changes_nothing(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "store.db", caps=CAPS, timeout=0.05)
    other = SqliteStore(tmp_path / "store.db", caps=CAPS)
    one, places = (
        hands(store, 1, QuotaSpec(limit=100))[0],
        store.quotas.open(
            QuotaKey("places", "p", "p"), QuotaSpec(limit=100, reserves=True, counts_slots=True)
        ),
    )
    two = other.quotas.open(NAME, one.spec)
    assert draw(store, one)
    assert draw(store, one)
    assert draw(store, places)
    lease = one.ceiling - one.used
    with other.transaction():
        for _ in range(lease):
            assert one.try_charge(1, 1), "what is on lease needs no store"
        with pytest.raises(StoreError, match="locked"):
            store.quotas.try_charge_all([(places, 1), (one, 1)], 1)
        one.charge(1, 1)
        with pytest.raises(StoreError):
            draw(store, one)
    assert seen(other, two) == 2 + lease + 1
    assert places.reserved == 1
    assert store.quotas.try_charge_all([(places, 1), (one, 1)], 1)
    assert places.reserved == 2
    assert drain(other, two) == 100 - 2 - lease - 1 - 1


def test_who_asks_and_gets_no_answer_draws_nothing_that_was_taken_back(store: Store) -> None:
    one, two = hands(store, 2, QuotaSpec(limit=100))
    assert draw(store, one)
    assert draw(store, one)
    assert one.has_room(20)
    assert drain(store, two) == 98
    with without_room(store), pytest.raises(StoreError):
        draw(store, one, 90)
    assert not one.try_charge(1, 1)
    assert drain(store, one) == 0


def test_who_was_taken_back_from_draws_by_itself_again(store: Store) -> None:
    one, two = hands(store, 2, QuotaSpec(limit=100))
    assert draw(store, one)
    assert draw(store, one)
    assert drain(store, two) == 98
    store.quotas.grant(NAME, 1000)
    assert draw(store, one)
    assert all(one.try_charge(1, 1) for _ in range(100))


def test_the_words_of_the_dead_stand_until_they_are_counted(tmp_path: Path) -> None:
    """Who joins in their place and fails must not have written over them."""
    path = tmp_path / "store.db"
    store, late = SqliteStore(path, caps=CAPS), SqliteStore(path, caps=CAPS)
    (dead,), (heir,) = hands(store, 1, QuotaSpec(limit=100)), hands(late, 1, QuotaSpec(limit=100))
    assert sum(draw(store, dead) for _ in range(10)) == 10
    assert draw(late, heir)
    die(store)
    with without_room(late), pytest.raises(StoreError):
        draw(late, heir)
    assert drain(late, heir) == 100 - 11


def test_the_dead_leave_no_rows_and_no_room_taken(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    for _ in range(30):
        store = SqliteStore(path, caps=CAPS)
        for name in ("one", "two"):
            purse = store.quotas.open(QuotaKey(name, "p", "p"), QuotaSpec(limit=10_000))
            assert sum(draw(store, purse) for _ in range(3)) == 3
        die(store)
    late = SqliteStore(path, caps=CAPS)
    (count,) = late._database.execute("SELECT count(*), max(slot) FROM shares")
    assert count[0] <= 2
    assert count[1] <= 3
    one = late.quotas.open(QuotaKey("one", "p", "p"), QuotaSpec(limit=10_000))
    assert drain(late, one) == 10_000 - 90


def test_a_store_that_nobody_has_any_more_holds_nothing(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    terms = QuotaSpec(limit=SCALE, reserves=True, counts_slots=True)
    store, late = SqliteStore(path, caps=CAPS), SqliteStore(path, caps=CAPS)
    (gone,), (other,) = hands(store, 1, terms), hands(late, 1, terms)
    assert draw(store, gone, SCALE)
    assert not draw(late, other, SCALE)
    del store, gone
    gc.collect()
    assert draw(late, other, SCALE)


def test_who_asks_once_leaves_nothing_on_lease(tmp_path: Path) -> None:
    """A command that is started for each call takes one transaction, and no share."""
    path = tmp_path / "store.db"
    for _ in range(3):
        store = SqliteStore(path, caps=CAPS)
        (purse,) = hands(store, 1, QuotaSpec(limit=100))
        assert draw(store, purse)
        assert store._database.execute("SELECT * FROM shares") == []
    assert not path.with_name("store.db.purses").exists()


def test_the_file_of_leases_is_the_users_alone(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        store = SqliteStore(tmp_path / "store.db", caps=CAPS)
        (purse,) = hands(store, 1, QuotaSpec(limit=100))
        assert sum(draw(store, purse) for _ in range(2)) == 2
    finally:
        os.umask(before)
    mode = (tmp_path / "store.db.purses").stat().st_mode
    assert stat.S_IMODE(mode) == 0o600


def test_a_store_of_an_earlier_version_is_brought_up_to_date(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    first = Database(path, application_id=APPLICATION_ID, migrations=MIGRATIONS[:1], timeout=1)
    first.execute("INSERT INTO evidence (scope, key, payload, used) VALUES ('p', 'k', x'31', 1)")
    first.close()
    store = SqliteStore(path, caps=CAPS)
    (purse,) = hands(store, 1, QuotaSpec(limit=5))
    assert drain(store, purse) == 5
    assert store.evidence.get("p", "k") == b"1"


@pytest.mark.parametrize("loss", ["gone", "emptied"])
def test_where_the_file_of_leases_is_lost_they_count_in_full(tmp_path: Path, loss: str) -> None:
    store = SqliteStore(tmp_path / "store.db", caps=CAPS)
    (purse,) = hands(store, 1, QuotaSpec(limit=100))
    assert sum(draw(store, purse) for _ in range(3)) == 3
    reach = purse.ceiling
    assert reach > 2
    moved = 2
    die(store)
    file = tmp_path / "store.db.purses"
    if loss == "gone":
        file.unlink()
    else:
        file.write_bytes(bytes(file.stat().st_size))
    late = SqliteStore(tmp_path / "store.db", caps=CAPS)
    (other,) = hands(late, 1, QuotaSpec(limit=100))
    assert drain(late, other) == 100 - moved - reach


def test_after_a_power_loss_leases_count_in_full(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file of leases may be older than the database then: what was used is not known."""
    for sync, left in ((False, 99), (True, 50)):
        path = tmp_path / str(sync) / "store.db"
        store = SqliteStore(path, caps=CAPS, sync=sync)
        (purse,) = hands(store, 1, QuotaSpec(limit=102))
        assert sum(draw(store, purse) for _ in range(3)) == 3
        places = store.quotas.open(
            QuotaKey("o", "p", "p"), QuotaSpec(limit=1, reserves=True, counts_slots=True)
        )
        assert draw(store, places)
        die(store)
        with monkeypatch.context() as patch:
            patch.setattr("policyguard.store.quota.sqlite._boot", lambda: "another")
            late = SqliteStore(path, caps=CAPS, sync=sync)
        (other,) = hands(late, 1, QuotaSpec(limit=102))
        assert drain(late, other) == left
        places = late.quotas.open(
            QuotaKey("o", "p", "p"), QuotaSpec(limit=1, reserves=True, counts_slots=True)
        )
        assert draw(late, places), "nobody can hold a place any more"


def test_what_lasts_a_power_loss_is_in_the_database_at_once(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "store.db", caps=CAPS, sync=True)
    (purse,) = hands(store, 1, QuotaSpec(limit=10, reserves=True))
    assert draw(store, purse, 5)
    purse.charge(3, 1)
    assert purse.words is not None
    assert purse.words[USED] == 0
    assert seen(store, purse) == 8


class World:
    """Some stores on one file, each a process of its own as far as leases go, and the truth.

    `unasked`: something was counted that nobody asks for, since it is known afterwards. From then
    on others may draw from what they have on lease, until they look (docs/decisions/0011, "What is
    exact").
    """

    def __init__(self, path: Path, terms: QuotaSpec) -> None:
        self.path, self.terms = path, terms
        self.used: list[tuple[int, int]] = []
        self.stores: dict[int, SqliteStore] = {}
        self.purses: dict[int, LeasedQuota] = {}
        self.held: dict[int, int] = {}
        self.unasked = False

    def purse(self, who: int) -> LeasedQuota:
        if who not in self.stores:
            self.stores[who] = SqliteStore(self.path, caps=CAPS)
            self.purses[who] = self.stores[who].quotas.open(NAME, self.terms)
            self.held[who] = 0
        return self.purses[who]

    def total(self, at: int) -> int:
        within = self.terms.within
        return sum(self.held.values()) + sum(
            amount for drawn, amount in self.used if within is None or drawn > at - within
        )

    def draw(self, who: int, amount: int, at: int) -> None:
        purse = self.purse(who)
        fits = self.total(at) + amount <= self.terms.limit
        drawn = draw(self.stores[who], purse, amount, at)
        assert drawn == fits or (drawn and self.unasked), (self.total(at), amount)
        if drawn and self.terms.reserves:
            self.held[who] += amount
        elif drawn:
            self.used.append((at, amount))

    def fail(self, who: int, amount: int, at: int) -> None:
        """Nothing can be written down: whoever has a lease may draw on it, nobody else."""
        purse = self.purse(who)
        fits = self.total(at) + amount <= self.terms.limit
        drawn = False
        with suppress(StoreError), without_room(self.stores[who]):
            drawn = draw(self.stores[who], purse, amount, at)
        assert fits or not drawn or self.unasked
        if drawn and self.terms.reserves:
            self.held[who] += amount
        elif drawn:
            self.used.append((at, amount))

    def finish(self, who: int, amount: int, at: int) -> None:
        purse = self.purse(who)
        purse.charge(amount, at)
        self.used.append((at, amount))
        purse.reserve(-self.held[who])
        self.held[who] = 0
        self.unasked = True

    def give_back(self, who: int, which: int) -> None:
        if self.used:
            drawn, amount = self.used.pop(which % len(self.used))
            self.purse(who).charge(-amount, drawn)

    def die(self, who: int) -> None:
        self.purse(who)
        die(self.stores.pop(who))
        self.purses.pop(who)
        self.held.pop(who)

    def close(self, who: int) -> None:
        self.purse(who)
        self.stores[who].close()


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["draw"] * 8 + ["fail", "finish", "give_back", "die", "close", "look"]),
        st.integers(0, 3),
        st.integers(1, 9),
    ),
    max_size=60,
)


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(STEPS, st.sampled_from([None, 20, 60]), st.booleans(), st.integers(0, 120), st.booleans())
def test_processes_that_come_go_and_die_draw_as_one_would(
    steps: list[tuple[str, int, int]], within: int | None, held: bool, limit: int, all_asked: bool
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        terms = QuotaSpec(limit=limit, within=within, reserves=held)
        world = World(Path(folder) / "state" / "store.db", terms)
        for at, (step, who, number) in enumerate(steps):
            match step:
                case "draw":
                    world.draw(who, number, at)
                case "fail":
                    world.fail(who, number, at)
                case "finish" if not all_asked:
                    world.finish(who, number, at)
                case "give_back":
                    world.give_back(who, number)
                case "look":
                    purse = world.purse(who)
                    assert seen(world.stores[who], purse, at) == world.total(at)
                case "die":
                    world.die(who)
                case "close":
                    world.close(who)
        end = len(steps)
        purse = world.purse(9)
        assert seen(world.stores[9], purse, end) == world.total(end)
        assert drain(world.stores[9], purse, end) == max(0, limit - world.total(end))
