"""Budgets over hosts stay exact through kills, stops and a restarted server; state is shared."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from policyguard import Guard, SessionBusyError, StoreError
from policyguard.cli import main
from policyguard.guard.sessions.open_sessions import OpenSessions
from policyguard.store.protocol import Caps
from policyguard.store.quota.protocol import QuotaKey, QuotaSpec
from tests.store.postgres_server import Server, postgres

__all__ = ["postgres"]

pytest.importorskip("psycopg", reason="psycopg is not installed")
import psycopg

from policyguard.store.postgres.quota_handle import PostgresQuota
from policyguard.store.postgres.schema import MIGRATIONS
from policyguard.store.postgres.store import PostgresStore

CAPS = Caps(constraints=100, grants=100, evidence=100, anchors=100)
KEY = QuotaKey("b", "p", "p")
TERM = 1.0
HOLDER = """
import sys
import threading
from policyguard.store.errors import StoreError
from policyguard.store.postgres.store import PostgresStore
from policyguard.store.protocol import Caps
from policyguard.store.quota.protocol import QuotaKey, QuotaSpec
import time
address, limit = sys.argv[1], int(sys.argv[2])
ended = threading.Event()
threading.Thread(target=lambda: (sys.stdin.read(), ended.set()), daemon=True).start()
caps = Caps(constraints=9, grants=9, evidence=9, anchors=9)
store = PostgresStore(address, caps=caps, term=float(sys.argv[3]))
quota = store.quotas.open(QuotaKey("b", "p", "p"), QuotaSpec(limit=limit))
while not ended.is_set():
    try:
        if quota.try_charge(1, 1) or store.quotas.try_charge_all([(quota, 1)], 1):
            sys.stdout.write(".")
            sys.stdout.flush()
        else:
            time.sleep(0.05)
    except StoreError:
        time.sleep(0.05)
    time.sleep(float(sys.argv[4]))
store.close()
"""


def start_holder(
    address: str, log: Path, limit: int, pause: float = 0.0002
) -> subprocess.Popen[bytes]:
    with log.open("wb") as output:
        command = [sys.executable, "-c", HOLDER, address, str(limit), str(TERM), str(pause)]
        return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=output)


def end_holders(holders: list[subprocess.Popen[bytes]]) -> None:
    """End those that live, and wait until what the dead had leased counts."""
    for holder in holders:
        holder.communicate()
    time.sleep(1.2 * TERM)


def used(address: str, limit: int) -> int:
    store = PostgresStore(address, caps=CAPS, term=TERM)
    quota = store.quotas.open(KEY, QuotaSpec(limit=limit))
    store.quotas.refresh([quota], 1, settle=True)
    store.close()
    return quota.usage.used


def drain(address: str, limit: int) -> int:
    store = PostgresStore(address, caps=CAPS, term=TERM)
    quota = store.quotas.open(KEY, QuotaSpec(limit=limit))
    count = 0
    while quota.try_charge(1, 1) or store.quotas.try_charge_all([(quota, 1)], 1):
        count += 1
    store.close()
    return count


def test_a_budget_is_never_exceeded_whoever_dies_or_sleeps(
    postgres: Server, tmp_path: Path
) -> None:
    address, limit = postgres.new_address(), 4_000
    logs = [tmp_path / f"{number}.log" for number in range(4)]
    holders = [start_holder(address, log, limit) for log in logs]
    while used(address, limit) < limit / 4:
        time.sleep(0.02)
    holders[0].kill()
    os.kill(holders[1].pid, signal.SIGSTOP)
    time.sleep(1.5 * TERM)
    os.kill(holders[1].pid, signal.SIGCONT)
    time.sleep(TERM)
    end_holders(holders)
    rest = drain(address, limit)
    drawn = sum(log.stat().st_size for log in logs) + rest
    assert drawn <= limit
    assert drawn >= 0.95 * limit  # what the dead and the sleeping had leased
    assert drain(address, limit) == 0


@pytest.mark.slow
def test_a_budget_is_exact_through_a_restarted_server(postgres: Server, tmp_path: Path) -> None:
    address, limit = postgres.new_address(), 3_000
    logs = [tmp_path / f"{number}.log" for number in range(3)]
    holders = [start_holder(address, log, limit) for log in logs]
    while used(address, limit) < limit / 4:
        time.sleep(0.02)
    postgres.stop()
    time.sleep(0.5)
    postgres.start()
    time.sleep(4 * TERM)
    end_holders(holders)
    drawn = sum(log.stat().st_size for log in logs) + drain(address, limit)
    assert 0.95 * limit <= drawn <= limit


def test_most_draws_ask_nothing(postgres: Server) -> None:
    store = PostgresStore(postgres.new_address(), caps=CAPS, term=60)
    quota = store.quotas.open(KEY, QuotaSpec(limit=10**9))
    asked = 0
    for _ in range(20_000):
        if not quota.try_charge(1, 1):
            asked += 1
            assert store.quotas.try_charge_all([(quota, 1)], 1)
    store.quotas.refresh([quota], 1)
    assert quota.usage.used == 20_000
    assert asked < 50
    store.close()


def draw(store: PostgresStore, quota: PostgresQuota) -> bool:
    return quota.try_charge(1, 1) or store.quotas.try_charge_all([(quota, 1)], 1)


def test_guards_that_draw_seldom_use_what_they_draw(postgres: Server) -> None:
    """What they have leased would count in full before the next call."""
    address, term = postgres.new_address(), 0.4
    stores = [PostgresStore(address, caps=CAPS, term=term) for _ in range(2)]
    quotas = [store.quotas.open(KEY, QuotaSpec(limit=2_000)) for store in stores]
    for _ in range(2):
        assert all(map(draw, stores, quotas))
        assert any(quota.lease for quota in quotas)
        time.sleep(1.5 * term)
    assert used(address, 2_000) == 4
    for store in stores:
        store.close()


@pytest.mark.parametrize("by_another", [False, True])
def test_a_lease_that_ran_out_counts_in_full_unless_its_holder_comes_first(
    postgres: Server, by_another: bool
) -> None:
    address, term = postgres.new_address(), 0.3
    store = PostgresStore(address, caps=CAPS, term=term)
    quota = store.quotas.open(KEY, QuotaSpec(limit=2_000))
    store.quotas._ended.set()  # as while the database is away: nothing is returned
    assert draw(store, quota)
    time.sleep(1.5 * term)
    store.quotas.refresh([quota], 1)
    assert quota.usage.used == 1
    if by_another:
        other = PostgresStore(address, caps=CAPS, term=term)
        others = other.quotas.open(KEY, QuotaSpec(limit=2_000))
        assert draw(other, others)
        other.close()
    assert draw(store, quota)
    store.close()
    assert used(address, 2_000) == (1 + 8 + 2 if by_another else 2)


def test_leases_together_are_a_small_part_of_the_limit(postgres: Server) -> None:
    address, limit = postgres.new_address(), 1_000
    stores = [PostgresStore(address, caps=CAPS, term=60) for _ in range(16)]
    quotas = [store.quotas.open(KEY, QuotaSpec(limit=limit)) for store in stores]
    for _ in range(12):
        assert all(map(draw, stores, quotas))
        held = sum(quota.leased - quota.drawn_amount for quota in quotas)
        assert limit / 40 <= sum(quota.leased for quota in quotas) <= limit / 20, held
    for store in stores:
        store.close()
    assert used(address, limit) == 12 * 16


@pytest.mark.parametrize("amount", [1, 3, 5])
def test_a_first_lease_is_for_eight_more_such_charges(postgres: Server, amount: int) -> None:
    store = PostgresStore(postgres.new_address(), caps=CAPS, term=60)
    quota = store.quotas.open(KEY, QuotaSpec(limit=10_000))
    assert store.quotas.try_charge_all([(quota, amount)], 1)
    assert [quota.try_charge(amount, 1) for _ in range(9)] == [True] * 8 + [False]
    store.close()


def test_after_a_reset_counts_what_was_drawn_from_a_lease_and_no_more(postgres: Server) -> None:
    """Its holder alone knows what that is, and may be drawing still."""
    address, limit = postgres.new_address(), 1000
    spec = QuotaSpec(limit=limit)
    holder, other = (PostgresStore(address, caps=CAPS) for _ in range(2))
    quota = holder.quotas.open(KEY, spec)
    for _ in range(100):
        assert quota.try_charge(1, 1) or holder.quotas.try_charge_all([(quota, 1)], 1)
    drawn = quota.drawn_amount
    assert 0 < drawn <= limit / 20
    before = other.quotas.reset(KEY, spec)
    assert before.used == 100 - drawn
    holder.close()
    assert used(address, limit) == drawn
    other.close()


def test_all_or_none_are_charged(postgres: Server) -> None:
    store = PostgresStore(postgres.new_address(), caps=CAPS)
    wide = store.quotas.open(QuotaKey("wide", "p", "p"), QuotaSpec(limit=10))
    narrow = store.quotas.open(QuotaKey("narrow", "p", "p"), QuotaSpec(limit=1))
    both = [(wide, 1), (narrow, 1)]
    assert store.quotas.try_charge_all(both, 1)
    assert not store.quotas.try_charge_all(both, 1)
    store.quotas.refresh([wide, narrow], 1)
    assert (wide.usage.used, narrow.usage.used) == (1, 1)
    store.close()


def test_a_window_gives_back_what_has_left_it(postgres: Server) -> None:
    address = postgres.new_address()
    one, two = (PostgresStore(address, caps=CAPS) for _ in range(2))
    spec = QuotaSpec(limit=2, within=100)
    first, second = (store.quotas.open(KEY, spec) for store in (one, two))
    assert one.quotas.try_charge_all([(first, 1)], 10)
    assert two.quotas.try_charge_all([(second, 1)], 50)
    assert not one.quotas.try_charge_all([(first, 1)], 90)
    assert one.quotas.try_charge_all([(first, 1)], 111)
    assert not two.quotas.try_charge_all([(second, 1)], 120)
    for store in (one, two):
        store.close()


def test_a_grant_to_a_scope_is_for_each_of_its_keys(postgres: Server) -> None:
    store = PostgresStore(postgres.new_address(), caps=CAPS)
    one, two = (QuotaKey("b", f"p\x1f{name}", "p") for name in ("one", "two"))
    store.quotas.grant(QuotaKey("b", "p", "p"), 2)
    store.quotas.grant(two, 1)
    for key, most in ((one, 5), (two, 6)):
        quota = store.quotas.open(key, QuotaSpec(limit=3))
        assert store.quotas.try_charge_all([(quota, most)], 1)
        assert not store.quotas.try_charge_all([(quota, 1)], 1)
        assert quota.granted == 2
    store.close()


def test_a_refund_is_known_to_all_at_once(postgres: Server) -> None:
    """Of what no lease covers; a holder without a lease draws nothing from one."""
    address = postgres.new_address()
    one, two = (PostgresStore(address, caps=CAPS) for _ in range(2))
    first, second = (store.quotas.open(KEY, QuotaSpec(limit=1000)) for store in (one, two))
    assert one.quotas.try_charge_all([(first, 1)], 1)
    two.quotas.refresh([second], 1)
    assert second.usage.used > 1  # what is leased counts in full
    first.charge(-1, 1)
    two.quotas.refresh([second], 1)
    assert second.usage.used == 0
    assert first.lease == 0
    assert not first.has_room(1)
    for store in (one, two):
        store.close()


def test_a_reservation_beyond_the_limit_counts_for_all(postgres: Server) -> None:
    """Of a call that only gets advice."""
    address = postgres.new_address()
    one, two = (PostgresStore(address, caps=CAPS) for _ in range(2))
    first, second = (
        store.quotas.open(KEY, QuotaSpec(limit=10, reserves=True)) for store in (one, two)
    )
    first.reserve(12)
    two.quotas.refresh([second], 1)
    assert second.usage.used == 12
    assert not two.quotas.try_charge_all([(second, 1)], 1)
    first.reserve(-12)
    one.quotas.close([first])
    assert two.quotas.try_charge_all([(second, 10)], 1)
    for store in (one, two):
        store.close()


def test_what_a_lease_reserves_is_limited_by_it_and_comes_back(postgres: Server) -> None:
    store = PostgresStore(postgres.new_address(), caps=CAPS, term=60)
    quota = store.quotas.open(KEY, QuotaSpec(limit=10**9, reserves=True))
    while not quota.leased:
        assert store.quotas.try_charge_all([(quota, 1)], 1)
    room = quota.leased - quota.reserved
    assert quota.try_charge(room, 1)
    assert not quota.try_charge(1, 1)
    quota.reserve(-room)
    assert quota.try_charge(room, 1)
    quota.reserve(-quota.reserved)
    store.quotas.refresh([quota], 1)
    assert (quota.usage.used, quota.drawn) == (0, [])
    store.close()


def test_a_draw_under_a_clock_that_is_ahead_forgets_no_other(postgres: Server) -> None:
    address = postgres.new_address()
    one, two = (PostgresStore(address, caps=CAPS, term=60) for _ in range(2))
    spec = QuotaSpec(limit=10**9, within=20)
    first, second = (store.quotas.open(KEY, spec) for store in (one, two))
    charged = 1
    assert one.quotas.try_charge_all([(first, 1)], 1)
    while not first.leased:
        assert one.quotas.try_charge_all([(first, 1)], 1)
        charged += 1
    assert first.try_charge(1, 1000)
    one.quotas.refresh([first], 2)
    assert first.usage.used_at(2, 20) == charged + 1
    assert one.quotas.try_charge_all([(first, 10**8)], 3)
    two.quotas.refresh([second], 3)
    assert second.usage.used_at(3, 20) >= 10**8 + charged + 1
    assert second.usage.used_at(22, 20) >= 10**8 + 1, "it counts from when it was seen"
    for store in (one, two):
        store.close()


def test_a_draw_under_a_clock_that_is_behind_is_not_forgotten(postgres: Server) -> None:
    address = postgres.new_address()
    one, two = (PostgresStore(address, caps=CAPS, term=60) for _ in range(2))
    spec = QuotaSpec(limit=10**9, within=20)
    first, second = (store.quotas.open(KEY, spec) for store in (one, two))
    assert one.quotas.try_charge_all([(first, 1)], 1000)
    one.quotas.close([first])
    charged = 1
    while not second.leased:
        assert two.quotas.try_charge_all([(second, 1)], 5)
        charged += 1
    assert second.try_charge(1, 6)
    two.quotas.close([second])
    one.quotas.refresh([first], 1001)
    assert first.usage.used_at(1001, 20) == charged + 1
    for store in (one, two):
        store.close()


def lease_threads() -> set[threading.Thread]:
    return {thread for thread in threading.enumerate() if thread.name == "policyguard-leases"}


def test_one_thread_looks_at_leases_as_soon_as_there_is_one(postgres: Server) -> None:
    others = lease_threads()
    store = PostgresStore(postgres.new_address(), caps=CAPS, term=60)
    small = store.quotas.open(QuotaKey("small", "p", "p"), QuotaSpec(limit=1))
    assert store.quotas.try_charge_all([(small, 1)], 1)
    assert small.lease == 0
    assert lease_threads() <= others  # those of other stores may end meanwhile
    for budget in ("one", "two"):
        quota = store.quotas.open(QuotaKey(budget, "p", "p"), QuotaSpec(limit=10**9))
        while not quota.lease:
            assert store.quotas.try_charge_all([(quota, 1)], 1)
        assert quota.asked_at < quota.until < quota.asked_at + 60, "the holder stops earlier"
    (thread,) = lease_threads() - others
    assert thread.daemon, "or the program would not end"
    store.close()


def test_slots_of_a_dead_holder_come_back(postgres: Server) -> None:
    address = postgres.new_address()
    one, two = (PostgresStore(address, caps=CAPS, term=0.5) for _ in range(2))
    spec = QuotaSpec(limit=10**9, reserves=True, counts_slots=True)
    first, second = (store.quotas.open(KEY, spec) for store in (one, two))
    assert one.quotas.try_charge_all([(first, 10**9)], 1)
    time.sleep(1.2)  # held, so renewed
    assert not two.quotas.try_charge_all([(second, 10**9)], 1)
    first.reserve(-(10**9))
    one.quotas.close([first])
    assert two.quotas.try_charge_all([(second, 10**9)], 1)
    two.quotas._ended.set()  # as if it had died
    time.sleep(0.8)
    assert one.quotas.try_charge_all([(first, 10**9)], 1)
    one.close()


POLICY = """
policyguard: 1
name: fleet
extends: [core]
learn: {corroborate: 1, scope: project}
signatures: [{id: broken, pattern: boom, blame: agent, examples: {match: [boom], no_match: [x]}}]
budgets: {all: {tools: [step], calls: 10, per: global}}
rules: {asks: {tools: [deploy], effect: ask}}
"""


@pytest.fixture(scope="module")
def compiled_once(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("fleet") / "policy.yaml"
    file.write_text(POLICY)
    return file


@pytest.fixture
def policy(compiled_once: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return compiled_once


def test_guards_share_budgets_bans_grants_and_sessions(postgres: Server, policy: Path) -> None:
    address = postgres.new_address()
    one, two = (Guard.load(policy, store=address) for _ in range(2))
    with one, two:
        here, there = one.session("a", project="p"), two.session("b", project="p")
        for number in range(10):
            session = (here, there)[number % 2]
            session.record(session.check("step", {"n": number}), result=f"{number}")
        assert not here.check("step", {"n": 11})
        assert not there.check("step", {"n": 12})

        assert here.record(here.check("run", {"x": 1}), error="boom").learned
        asked = here.check("deploy", {"n": 0})
        here.approve(asked, by="ann", remember="tool", expires=60, scope="project")
        deadline = time.monotonic() + 5
        while there.preview("run", {"x": 1}) or not there.preview("deploy", {"n": 1}):
            assert time.monotonic() < deadline
            time.sleep(0.05)
        assert not there.check("run", {"x": 1})
        assert there.check("deploy", {"n": 1})
        with pytest.raises(SessionBusyError):
            two.session("a", project="p")
    with Guard.load(policy, store=address) as later:
        resumed = later.session("a", project="p")
        assert resumed._state.cel_session["calls"] > 5


def test_a_grant_to_a_scope_reaches_a_key_that_another_host_has_used_up(
    postgres: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    file, address = tmp_path / "policy.yaml", postgres.new_address()
    file.write_text(
        "policyguard: 1\nname: keyed\nbudgets: {b: {calls: 2, per: [project, call.args.order]}}\n"
    )
    with Guard.load(file, store=address) as one, Guard.load(file, store=address) as two:
        here, there = one.session("a", project="p"), two.session("b", project="p")
        assert [here.check("step", {"order": "x"}).allowed for _ in range(3)] == [True, True, False]
        there.grant("b", 1, by="ann")
        assert here.check("step", {"order": "x"})
        assert not here.check("step", {"order": "x"})


@pytest.mark.parametrize(
    ("budget", "meta"),
    [
        ("{concurrent: 1, per: global}", {}),
        ("{concurrent: 30, per: global}", {}),
        ("{cost: 1.0, reserve: 0.6, per: global}", {"cost": 0.1}),
    ],
)
def test_what_an_ended_call_held_is_free_at_once_for_another_host(
    postgres: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, budget: str, meta: Any
) -> None:
    """And not when the host that held it asks again, or its lease is old."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    file, address = tmp_path / "policy.yaml", postgres.new_address()
    file.write_text(f"policyguard: 1\nname: running\nbudgets: {{b: {budget}}}\n")
    with Guard.load(file, store=address) as one, Guard.load(file, store=address) as two:
        here, there = one.session("a", project="p"), two.session("b", project="p")
        running = []
        while decision := here.check("step", {"n": len(running)}):
            running.append(decision)
        assert not there.check("step", {"n": "while they run"})
        for decision in running:
            here.record(decision, result="x", meta=meta)
        assert [there.check("step", {"n": f"{number} after"}).allowed for number in range(2)] == [
            True,
            len(running) > 1,
        ]


@pytest.mark.parametrize(
    "address",
    [
        "postgresql://ann:secret@127.0.0.1:1/none",
        "postgresql://ann:secret@nowhere.invalid/none",
        "postgresql://ann:secret@127.0.0.1:1/none?sslmode=nonsense",
        "postgresql://ann:secret@[::1",
    ],
)
def test_a_database_that_is_away_is_named_without_its_password(policy: Path, address: str) -> None:
    with pytest.raises(StoreError) as caught:
        Guard.load(policy, store=address)
    assert "secret" not in str(caught.value)
    assert "postgresql:" in str(caught.value)
    assert caught.value.__cause__ is None


def test_calls_go_on_as_the_policy_says_while_the_database_is_away(
    postgres: Server, policy: Path
) -> None:
    address = postgres.new_address()
    with Guard.load(policy, store=address) as guard:
        session = guard.session("a", project="p")
        session.record(session.check("step", {"n": 0}), result="0")
        postgres.stop()
        try:
            began = time.monotonic()
            decisions = [session.check("step", {"n": number}) for number in range(1, 6)]
            assert time.monotonic() - began < 25  # to wait for it each time takes 50 s
        finally:
            postgres.start()
        for decision in decisions:
            assert decision.allowed or decision.errors
            if decision:
                session.record(decision, result="x")
        deadline = time.monotonic() + 10
        while session.preview("step", {"n": 9}).errors:
            assert time.monotonic() < deadline
            time.sleep(0.1)
        time.sleep(1.1)  # for what was away to be asked again


def test_another_guard_sees_a_constraint_at_once(postgres: Server, policy: Path) -> None:
    address = postgres.new_address()
    one, two = (Guard.load(policy, store=address) for _ in range(2))
    with one, two:
        here, there = one.session("a", project="p"), two.session("b", project="p")
        there.preview("run", {"x": 1})  # it has looked
        assert two._constraint_sync is not None
        two._constraint_sync.next_poll = float("inf")
        assert here.record(here.check("run", {"x": 1}), error="boom").learned
        deadline = time.monotonic() + 30
        while there.preview("run", {"x": 1}):
            assert time.monotonic() < deadline
            time.sleep(0.005)


class Listener:
    def __init__(self) -> None:
        self.heard = threading.Event()

    def hear(self) -> None:
        self.heard.set()


def test_a_store_that_listens_closes_at_once(postgres: Server) -> None:
    address = postgres.new_address()
    times = []
    for _ in range(3):
        store, listener = PostgresStore(address, caps=CAPS), Listener()
        store.on_change(listener.hear)
        assert listener.heard.wait(30)
        began = time.monotonic()
        store.close()
        times.append(time.monotonic() - began)
    assert min(times) < 0.3  # of several, as the machine may be busy


def test_commands_take_an_address(postgres: Server, policy: Path) -> None:
    address = postgres.new_address()
    with Guard.load(policy, store=address) as guard:
        session = guard.session("a", project="p")
        session.record(session.check("step", {"n": 1}), result="1")
        session.record(session.check("run", {"x": 1}), error="boom")

    def run(*arguments: str) -> str:
        result = CliRunner().invoke(main, [*arguments, "--store", address])
        assert result.exit_code == 0, result.output
        return result.output

    assert "constraints  1" in run("store", "status")
    assert "is up to date" in run("store", "migrate")
    assert "budgets/all" in run("budgets", "list")
    listed = json.loads(run("constraints", "list", "--format", "json"))
    run("constraints", "revoke", listed[0]["id"])
    run("budgets", "reset", "all")
    assert run("grants", "list") == "no grants\n"
    assert '"session":"a"' in run("journal", "anchors")
    assert "is up to date" in run("store", "migrate")
    assert "0 deleted, 0 kept" in run("journal", "prune", "--older-than", "30d")
    assert "1 deleted, 0 kept" in run("journal", "prune", "--older-than", "0s")
    with Guard.load(policy, store=address) as guard:
        assert guard.session("c", project="p").check("run", {"x": 1})


def test_status_names_the_database_and_never_the_password(
    postgres: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also what the address leaves to libpq's own settings."""
    address = postgres.new_address()
    monkeypatch.setenv("PGPASSWORD", "secret")
    monkeypatch.setenv("PGDATABASE", address.rpartition("/")[2])
    monkeypatch.setenv("PGPORT", str(postgres.port))
    bare = "postgresql://tests:secret@127.0.0.1"
    shown = CliRunner().invoke(main, ["store", "status", "--store", bare])
    assert shown.exit_code == 0, shown.output
    for line in ("host         127.0.0.1", f"port         {postgres.port}", "user         tests"):
        assert line in shown.output
    assert f"database     {address.rpartition('/')[2]}" in shown.output
    as_json = CliRunner().invoke(main, ["store", "status", "--format", "json", "--store", bare])
    assert json.loads(as_json.output)["port"] == postgres.port
    assert "secret" not in shown.output + as_json.output


def test_hooks_and_proxies_take_an_address(postgres: Server, policy: Path, tmp_path: Path) -> None:
    address = postgres.new_address()
    settings = tmp_path / "settings.json"
    named = ["--policy", str(policy), "--store", address, "--settings", str(settings), "--yes"]
    result = CliRunner().invoke(main, ["hook", "install", "claude-code", *named])
    assert result.exit_code == 0, result.output
    (hook,) = json.loads(settings.read_text())["hooks"]["PreToolUse"][0]["hooks"]
    event = {"session_id": "s", "hook_event_name": "PreToolUse", "tool_use_id": "t", "cwd": "/"}
    call = {**event, "tool_name": "deploy", "tool_input": {"n": 1}}
    environment = {**os.environ, "XDG_RUNTIME_DIR": str(tmp_path / "none")}
    command = hook["command"].replace(" ||", f" --socket {tmp_path / 's'} ||", 1)
    answer = subprocess.run(  # as the host runs it; the service starts, and ends when it is idle
        ["sh", "-c", command],
        input=json.dumps(call),
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    assert "asks" in answer.stdout
    store = PostgresStore(address, caps=CAPS)
    assert [anchor.session for anchor in store.anchors.all()] == ["s"]
    store.close()
    subprocess.run(["pkill", "-f", address], check=False)


def test_a_later_schema_is_left_alone(postgres: Server, policy: Path) -> None:
    address = postgres.new_address()
    PostgresStore(address, caps=CAPS).constraints.version()
    with psycopg.connect(address, autocommit=True) as connection:
        connection.execute("UPDATE policyguard_schema SET version = 999")
    with pytest.raises(StoreError, match="later version of policyguard"):
        Guard.load(policy, store=address)


@pytest.mark.parametrize("version", range(1, len(MIGRATIONS)))
def test_an_earlier_schema_is_brought_up_to_date(
    postgres: Server, policy: Path, version: int
) -> None:
    address = postgres.new_address()
    with psycopg.connect(address, autocommit=True) as connection:
        for migration in MIGRATIONS[:version]:
            connection.execute(migration)
        connection.execute("CREATE TABLE policyguard_schema (version int NOT NULL)")
        connection.execute("INSERT INTO policyguard_schema VALUES (%s)", (version,))
    with Guard.load(policy, store=address) as guard:
        session = guard.session("s")
        session.record(session.check("look"), result="ok")


def test_several_processes_make_the_tables_at_once(postgres: Server) -> None:
    address = postgres.new_address()
    code = (
        "import sys; from policyguard.store.postgres.store import PostgresStore; "
        "PostgresStore(sys.argv[1], caps=None).constraints.version()"
    )
    command = [sys.executable, "-c", code, address]
    started = [subprocess.Popen(command, stderr=subprocess.PIPE) for _ in range(4)]
    assert [(one.communicate()[1], one.returncode) for one in started] == [(b"", 0)] * 4


def test_a_session_that_another_has_taken_over_is_let_go(postgres: Server, policy: Path) -> None:
    """As after a cut of the network that the server noticed and the host did not."""
    address = postgres.new_address()
    other = PostgresStore(address, caps=CAPS)
    other.constraints.version()
    with Guard.load(policy, store=address) as guard:
        kept, session = guard.session("kept"), guard.session("a")
        session.record(session.check("look", {"n": 1}), result="1")
        with psycopg.connect(address, autocommit=True) as connection:
            connection.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_locks "
                "WHERE locktype = 'advisory' AND pid <> pg_backend_pid()"
            )
        taken = None
        while taken is None:  # the server takes a moment to end a connection
            with suppress(SessionBusyError):
                taken = other.lock_session("a")
        deadline = time.monotonic() + 5
        while not session.closed:
            assert time.monotonic() < deadline
            kept.check("look", {"n": 1})
            time.sleep(0.05)
        assert not session.check("look", {"n": 3})
        kept.check("look", {"n": 4})  # locks it anew
        assert not kept.closed
        with pytest.raises(SessionBusyError):
            other.lock_session("kept")
    other.close()


def test_sub_agents_of_a_lost_session_are_let_go(postgres: Server, policy: Path) -> None:
    address = postgres.new_address()
    other = PostgresStore(address, caps=CAPS)
    other.constraints.version()
    with Guard.load(policy, store=address) as guard:
        kept, session = guard.session("kept"), guard.session("a")
        child = guard.session("child", parent=session)
        below = guard.session("below", parent=child)
        with psycopg.connect(address, autocommit=True) as connection:
            connection.execute(
                "SELECT pg_terminate_backend(pid, 5000) FROM pg_locks "
                "WHERE locktype = 'advisory' AND pid <> pg_backend_pid()"
            )
        other.lock_session("a")
        deadline = time.monotonic() + 5
        while not session.closed:
            assert time.monotonic() < deadline
            kept.check("look", {"n": 1})
            time.sleep(0.05)
        assert child.closed
        assert below.closed
        assert not child.check("look", {"n": 1})
        assert not kept.closed
        other.lock_session("child").release()
    other.close()


def test_a_connection_lost_while_a_session_is_locked_leaves_no_lock(postgres: Server) -> None:
    address = postgres.new_address()
    one, other = (PostgresStore(address, caps=CAPS) for _ in range(2))
    one.constraints.version()
    waiting = (
        "FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
    )
    with psycopg.connect(address) as blocker, ThreadPoolExecutor() as pool:
        blocker.execute("LOCK TABLE holders IN ACCESS EXCLUSIVE MODE")
        locked = pool.submit(one.lock_session, "a")
        with psycopg.connect(address, autocommit=True) as admin:
            while admin.execute(f"SELECT count(*) {waiting}").fetchone() != (1,):
                time.sleep(0.01)
            admin.execute(f"SELECT pg_terminate_backend(pid) {waiting}")
            while admin.execute(f"SELECT count(*) {waiting}").fetchone() != (0,):
                time.sleep(0.01)
        blocker.rollback()
        with pytest.raises(StoreError):
            locked.result()
    with other.lock_session("a"), pytest.raises(SessionBusyError):
        one.lock_session("a")
    one.close()
    other.close()


FULL_DISK = """
CREATE FUNCTION fail() RETURNS trigger LANGUAGE plpgsql AS
$$ BEGIN RAISE EXCEPTION 'no space left' USING ERRCODE = 'disk_full'; END $$;
CREATE TRIGGER full_disk BEFORE INSERT ON holders FOR EACH ROW WHEN (NEW.session = 'b')
EXECUTE FUNCTION fail()
"""
"""Makes the locking of session `b` fail without losing the connection."""


def test_a_statement_that_takes_too_long_loses_no_session(postgres: Server) -> None:
    store = PostgresStore(postgres.new_address(), caps=CAPS)
    with store.lock_session("a"):
        before = store.lock_generation
        store._database.execute("SET statement_timeout = '50ms'")
        with pytest.raises(StoreError, match="try again"):
            store._database.execute("SELECT pg_sleep(5)")
        assert store._database.execute("SELECT 1") == [(1,)]
        assert store.lock_generation == before
    store.close()


def test_a_session_that_cannot_be_written_down_is_not_locked(postgres: Server) -> None:
    address = postgres.new_address()
    one, other = (PostgresStore(address, caps=CAPS) for _ in range(2))
    one.constraints.version()
    with psycopg.connect(address, autocommit=True) as admin:
        admin.execute(FULL_DISK)
        with pytest.raises(StoreError, match="no space left"):
            one.lock_session("b")
        admin.execute("DROP TRIGGER full_disk ON holders")
    with other.lock_session("b"), pytest.raises(SessionBusyError):
        one.lock_session("b")
    with one.lock_session("b"), pytest.raises(SessionBusyError):
        other.lock_session("b")
    one.close()
    other.close()


def test_a_lost_session_is_remembered_when_locking_the_next_fails(postgres: Server) -> None:
    address = postgres.new_address()
    one, other = (PostgresStore(address, caps=CAPS) for _ in range(2))
    sessions = OpenSessions({}, one, max_sessions=9, lock=threading.RLock())
    for id_ in ("a", "b"):
        sessions.lock(id_)
    assert sessions.find_lost() == []
    with psycopg.connect(address, autocommit=True) as admin:
        admin.execute(
            "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity "
            "WHERE datname = current_database() AND pid <> pg_backend_pid()"
        )
        other.lock_session("a").release()
        one.constraints.version()
        admin.execute(FULL_DISK)
        with pytest.raises(StoreError, match="no space left"):
            sessions.find_lost()
        admin.execute("DROP TRIGGER full_disk ON holders")
    assert sessions.find_lost() == ["a"]
    one.close()
    other.close()


def test_journals_of_two_hosts_are_held_against_the_anchors(
    postgres: Server, policy: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    address = postgres.new_address()
    folders = []
    for host in ("one", "two"):
        monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / host))
        with Guard.load(policy, store=address) as guard:
            session = guard.session(host)
            session.record(session.check("look", {"n": 1}), result="1")
            assert guard._journal is not None
            folders.append(guard._journal.folder)

    def verify() -> tuple[int, str]:
        arguments = ["journal", "verify", *map(str, folders), "--store", address]
        result = CliRunner().invoke(main, arguments)
        return result.exit_code, result.output

    code, said = verify()
    assert (code, "2 journals" in said) == (0, True), said
    next(folders[1].glob("*.jsonl")).unlink()  # as that host's root may
    code, said = verify()
    assert (code, "two" in said) == (1, True), said


def read_documented_grants() -> list[str]:
    text = (Path(__file__).parents[2] / "docs" / "fleet.md").read_text()
    _, _, block = text.partition("```sql\n")
    return [line.strip() for line in block.partition("```")[0].splitlines()]


def test_the_documented_rights_suffice(
    postgres: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    owner = postgres.new_address()
    CliRunner().invoke(main, ["store", "migrate", "--store", owner], catch_exceptions=False)
    with psycopg.connect(owner, autocommit=True) as connection:
        connection.execute("CREATE ROLE guards LOGIN")
        for grant in read_documented_grants():
            connection.execute(grant)
    address = owner.replace("tests@", "guards@")
    policy = tmp_path / "policy.yaml"
    policy.write_text("policyguard: 1\nname: x\nbudgets: {b: {calls: 2, per: project}}\n")
    with Guard.load(policy, store=address) as guard:
        decisions = [guard.session("s", project="p").check("t")]
        decisions += [guard.session("s", project="p").check("t") for _ in range(2)]
    assert [(bool(one), one.errors) for one in decisions] == [(True, ()), (True, ()), (False, ())]
    for command in ("store status", "journal verify", "budgets list", "journal prune"):
        more = ["--older-than", "0s"] if command == "journal prune" else []
        result = CliRunner().invoke(main, [*command.split(), "--store", address, *more])
        assert result.exit_code == 0, (command, result.output)
    with psycopg.connect(address, autocommit=True) as connection:
        for statement in ("UPDATE policyguard_schema SET version = 9", "DROP TABLE quotas"):
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                connection.execute(statement)
    store = PostgresStore(address, caps=CAPS)
    ((timeout,),) = store._database.execute("SHOW statement_timeout")
    store.close()
    assert timeout == "5s"


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ("sslmode=require", "server does not support SSL"),
        ("sslmode=bogus", 'invalid sslmode value: "bogus"'),
        ("nonsense=1", "is no address that libpq can read"),
    ],
)
def test_options_of_the_address_reach_libpq(postgres: Server, options: str, says: str) -> None:
    address = f"{postgres.new_address()}?{options}"
    result = CliRunner().invoke(main, ["store", "status", "--store", address])
    assert (result.exit_code, says in result.output) == (2, True), result.output
