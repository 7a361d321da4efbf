"""A wall clock that is set: durations go by the time that passes, `now` by the clock."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import msgspec
import pytest

from policyguard import Guard
from policyguard.compiler import compile_policy
from policyguard.guard import clock as clocks
from policyguard.guard import guard as guard_module
from policyguard.guard import session as session_module
from policyguard.guard.clock import HostClock, SteadyClock, SystemClock
from policyguard.guard.replay import ReplayGuard
from policyguard.guard.session import Session
from policyguard.model.event import Admitted, Completed, Event, Refused, SessionStarted
from policyguard.store.boot import read_boot_id, read_time_id
from policyguard.store.protocol import Store

SECOND = 10**9
MINUTE = 60 * SECOND
HOUR = 60 * MINUTE
DAY = 24 * HOUR
EVENING = int(datetime(2024, 5, 6, 21, tzinfo=UTC).timestamp()) * SECOND
OFFICE_HOURS = """
rules:
  hours:
    tools: [deploy]
    unless: now.during('09:00-17:00 UTC')
    effect: block
    message: m
    examples: {match: [{call: {deploy: {}}, at: "2024-01-01T22:00:00Z"}]}
"""
WINDOW = "budgets: {calls: {calls: 2, within: 1h}}"
TIME = "budgets: {time: {time: 10m}}"
OUTAGE = """
signatures: [{id: down, pattern: down, blame: harness}]
limits: {tools: {fetch: {outage: {max: 1, within: 10m, cooldown: 30m}}}}
"""


class Machine:
    """The clocks of a machine: time passes on both; the wall clock can be set."""

    def __init__(self) -> None:
        self.wall = EVENING
        self.elapsed = 5 * HOUR
        self.monotonic = 4 * HOUR

    def wait(self, duration: int) -> None:
        self.sleep(duration)
        self.monotonic += duration

    def sleep(self, duration: int) -> None:
        self.wall += duration
        self.elapsed += duration

    def steady_clock(self, store: Store | None = None) -> SystemClock:
        return SystemClock(
            store,
            wall=lambda: self.wall,
            elapsed=lambda: self.elapsed,
            monotonic=lambda: self.monotonic,
        )


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Machine:
    """The machine on which guards run that have no clock of their host's."""
    found = Machine()

    def open_steady_clock(clock: Callable[[], int], store: Store | None) -> SteadyClock:
        return found.steady_clock(store) if clock is time.time_ns else HostClock(clock)

    monkeypatch.setattr(guard_module, "open_steady_clock", open_steady_clock)
    monkeypatch.setattr(session_module, "monotonic_ns", lambda: found.monotonic)
    monkeypatch.setattr(time, "monotonic_ns", lambda: found.monotonic)
    return found


def load(folder: Path, policy: str, **options: object) -> Guard:
    file = folder / "p.yaml"
    file.write_text(f"policyguard: 1\nname: t\n{policy}\n")
    return Guard.load(file, **options)


def is_allowed(session: Session, tool: str = "x", **result: object) -> bool:
    decision = session.check(tool, {})
    if decision.allowed:
        session.record(decision, **(result or {"result": "x"}))
    return decision.allowed


def test_now_follows_a_clock_that_is_set_ahead_and_back(tmp_path: Path, machine: Machine) -> None:
    session = load(tmp_path, OFFICE_HOURS).session("s")
    assert not is_allowed(session, "deploy")
    machine.wall += 13 * HOUR
    machine.wait(2 * SECOND)
    assert is_allowed(session, "deploy")
    machine.wall -= 13 * HOUR
    machine.wait(2 * SECOND)
    assert not is_allowed(session, "deploy")
    machine.wait(12 * HOUR)
    assert is_allowed(session, "deploy")


@pytest.mark.parametrize("step", [DAY, -DAY, HOUR, -HOUR], ids=str)
def test_window_is_as_long_as_the_time_that_passes(
    tmp_path: Path, machine: Machine, step: int
) -> None:
    session = load(tmp_path, WINDOW).session("s")
    assert is_allowed(session)
    assert is_allowed(session)
    machine.wall += step
    machine.wait(59 * MINUTE)
    assert not is_allowed(session)
    machine.wait(2 * MINUTE)
    assert is_allowed(session)
    machine.wall -= step
    assert is_allowed(session)
    machine.wait(59 * MINUTE)
    assert not is_allowed(session)


@pytest.mark.parametrize("step", [DAY, -HOUR], ids=str)
def test_time_budget_is_neither_cut_nor_stretched(
    tmp_path: Path, machine: Machine, step: int
) -> None:
    session = load(tmp_path, TIME).session("s")
    machine.wall += step
    machine.wait(9 * MINUTE)
    assert is_allowed(session)
    machine.wall -= step
    machine.wait(MINUTE)
    assert not is_allowed(session)


@pytest.mark.parametrize("step", [DAY, -DAY], ids=str)
def test_cooldown_is_as_long_as_the_time_that_passes(
    tmp_path: Path, machine: Machine, step: int
) -> None:
    session = load(tmp_path, OUTAGE).session("s")
    assert is_allowed(session, "fetch", error="down")
    assert not is_allowed(session, "fetch")
    machine.wall += step
    machine.wait(29 * MINUTE)
    assert not is_allowed(session, "fetch")
    machine.wait(2 * MINUTE)
    assert is_allowed(session, "fetch")


def test_time_passes_while_the_machine_sleeps(tmp_path: Path, machine: Machine) -> None:
    session = load(tmp_path, TIME).session("s")
    assert is_allowed(session)
    machine.sleep(9 * MINUTE)
    machine.wait(2 * SECOND)
    assert is_allowed(session)
    machine.sleep(MINUTE)
    machine.wait(2 * SECOND)
    assert not is_allowed(session)


def test_a_sleep_of_a_second_is_noticed(machine: Machine) -> None:
    steady_clock = machine.steady_clock()
    before = steady_clock.sync()
    machine.sleep(SECOND - 1)
    assert steady_clock.sync() == before
    machine.sleep(1)
    assert steady_clock.sync() == before + SECOND


def test_sleep_is_measured_by_the_clock_of_the_boot() -> None:
    assert hasattr(time, "CLOCK_BOOTTIME"), "the suite runs on Linux"
    clock = clocks.elapsed_time
    assert clock.args == (time.CLOCK_BOOTTIME,)  # type: ignore[attr-defined]


def test_a_clock_of_the_host_counts_steps_forward_only(tmp_path: Path) -> None:
    now = [EVENING]
    session = load(tmp_path, OFFICE_HOURS + WINDOW, clock=lambda: now[0]).session("s")
    assert not is_allowed(session, "deploy")
    now[0] += 13 * HOUR
    assert is_allowed(session)
    now[0] -= 13 * HOUR
    assert not is_allowed(session, "deploy")
    assert is_allowed(session)
    now[0] += 59 * MINUTE
    assert not is_allowed(session)
    now[0] += 2 * MINUTE
    assert is_allowed(session)


def test_now_is_the_time_that_the_host_gives(tmp_path: Path) -> None:
    session = load(tmp_path, OFFICE_HOURS).session("s")
    session.check("x", at=EVENING + 13 * HOUR)
    assert not session.check("deploy", at=EVENING).allowed
    assert not session.preview("deploy", at=EVENING).allowed
    assert session.preview("deploy", at=EVENING + 13 * HOUR).allowed


def test_time_goes_on_from_a_time_ahead_that_the_host_gave(
    tmp_path: Path, machine: Machine
) -> None:
    session = load(tmp_path, f"{OFFICE_HOURS}{WINDOW}").session("s")
    assert session.check("x", at=EVENING + 13 * HOUR + 365 * DAY).allowed
    assert not session.check("deploy").allowed
    machine.wait(13 * HOUR)
    assert session.check("deploy").allowed
    assert session.check("x").allowed
    assert not session.check("x").allowed
    machine.wait(2 * HOUR)
    assert session.check("x").allowed


def test_time_goes_on_from_a_time_that_is_one_second_ahead(
    tmp_path: Path, machine: Machine
) -> None:
    guard = load(tmp_path, WINDOW)
    times: list[int | None] = []
    guard.on(lambda event: times.append(event.at), Admitted)
    session = guard.session("s")
    session.check("x", at=EVENING + SECOND)
    machine.wait(HOUR)
    session.check("x")
    assert times == [EVENING + SECOND, EVENING + HOUR + SECOND]


def test_a_time_in_the_past_does_not_move_time_back(tmp_path: Path, machine: Machine) -> None:
    guard = load(tmp_path, WINDOW)
    times: list[int | None] = []
    guard.on(lambda event: times.append(event.at), Admitted)
    session = guard.session("s")
    session.check("x", at=EVENING + DAY)
    session.preview("x", at=EVENING)
    session.check("x", at=EVENING - DAY)
    machine.wait(2 * HOUR)
    session.check("x")
    assert times[-1] == EVENING + DAY + 2 * HOUR


def test_preview_does_not_move_time(tmp_path: Path, machine: Machine) -> None:
    session = load(tmp_path, WINDOW).session("s")
    session.preview("x", at=EVENING + DAY)
    assert is_allowed(session)
    assert is_allowed(session)
    session.preview("x", at=EVENING + DAY)
    assert not is_allowed(session)


def test_journal_has_both_times_and_a_replay_sees_them(tmp_path: Path, machine: Machine) -> None:
    policy = OFFICE_HOURS + "journal: {args: keep, results: keep}"
    guard = load(tmp_path, policy, store=tmp_path / "state" / "store.db")
    session = guard.session("s")
    begin = machine.wall
    assert is_allowed(session)
    machine.wall += 13 * HOUR
    machine.wait(2 * SECOND)
    assert is_allowed(session, "deploy")
    session.turn()
    machine.wall -= 13 * HOUR
    machine.wait(2 * SECOND)
    assert not is_allowed(session, "deploy")
    guard.close()
    (file,) = (tmp_path / "state" / "journal").iterdir()
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    times = [(line["event"], line["at"] - begin, line.get("wall")) for line in lines]
    ahead = begin + 13 * HOUR + 2 * SECOND
    assert times == [
        ("started", 0, None),
        ("admitted", 0, None),
        ("completed", 0, None),
        ("admitted", 2 * SECOND, ahead),
        ("completed", 2 * SECOND, ahead),
        ("turn_started", 2 * SECOND, ahead),
        ("refused", 4 * SECOND, None),
    ]
    assert replay(tmp_path, lines) == [True, True, False]
    assert load(tmp_path, policy, store=tmp_path / "state" / "store.db").session("s").check("x")


def replay(folder: Path, lines: list[dict[str, object]]) -> list[bool]:
    """Return which calls of a journal a replay allows."""
    guard = ReplayGuard(compile_policy(folder / "p.yaml"))
    chained = ("seq", "chain", "prev", "hash", "masked")
    allowed = []
    for line in lines:
        event: Event = msgspec.convert(
            {name: value for name, value in line.items() if name not in chained}, Event
        )
        if isinstance(event, SessionStarted):
            session = guard.start_session(event)
        elif isinstance(event, Admitted | Refused):
            allowed.append(session.check(event).allowed)
        elif isinstance(event, Completed):
            session.record(event)
    return allowed


def test_reopened_session_goes_on_from_its_latest_event(tmp_path: Path) -> None:
    """Its journal is of a machine whose clock was a day ahead."""
    now = [EVENING + DAY]

    def session() -> Session:
        store = tmp_path / "state" / "store.db"
        return load(tmp_path, OFFICE_HOURS + WINDOW, store=store, clock=lambda: now[0]).session("s")

    first = session()
    assert is_allowed(first)
    assert is_allowed(first)
    first.guard.close()
    now[0] = EVENING
    second = session()
    assert not is_allowed(second)
    assert "rules/hours" in {violation.id for violation in second.check("deploy").violations}
    now[0] += 59 * MINUTE
    assert not is_allowed(second)
    now[0] += 2 * MINUTE
    assert is_allowed(second)
    child = second.guard.session("child", parent=second)
    assert child._state.started_at == second._state.now


SHARED = "budgets: {calls: {calls: 3, within: 1h, per: user}}"


@pytest.mark.parametrize("step", [DAY, -DAY], ids=str)
def test_guards_of_a_store_count_durations_alike(
    tmp_path: Path, machine: Machine, step: int
) -> None:
    store = tmp_path / "state" / "store.db"
    first = load(tmp_path, SHARED, store=store).session("a", user="ann")
    assert is_allowed(first)
    machine.wall += step
    second = load(tmp_path, SHARED, store=store).session("b", user="ann")
    assert is_allowed(second)
    machine.wall -= step
    third = load(tmp_path, SHARED, store=store).session("c", user="ann")
    assert is_allowed(third)
    machine.wait(59 * MINUTE)
    assert not is_allowed(first)
    assert not is_allowed(third)
    machine.wait(2 * MINUTE)
    assert is_allowed(first)
    assert is_allowed(second)
    assert is_allowed(third)


def test_time_goes_on_after_a_boot_with_a_clock_set_back(tmp_path: Path, machine: Machine) -> None:
    store = tmp_path / "state" / "store.db"
    with load(tmp_path, SHARED, store=store) as guard:
        session = guard.session("a", user="ann")
        assert is_allowed(session)
        assert is_allowed(session)
        assert is_allowed(session)
    machine.wall -= DAY
    machine.elapsed = machine.monotonic = MINUTE
    session = load(tmp_path, SHARED, store=store).session("b", user="ann")
    assert not is_allowed(session)
    machine.wait(59 * MINUTE)
    assert not is_allowed(session)
    machine.wait(2 * MINUTE)
    assert is_allowed(session)


@pytest.mark.skipif(not read_boot_id(), reason="the system names no boot")
def test_time_is_counted_from_a_boot_and_a_namespace() -> None:
    boot, namespace = read_time_id().split(" ", 1)
    assert boot == read_boot_id()
    assert namespace.startswith("time:")


def test_a_clock_that_differs_from_the_wall_is_read_at_every_call(machine: Machine) -> None:
    clock = machine.steady_clock()
    at = clock.sync()
    assert (clock.skew, clock.next_sync) == (0, at + clocks.RESOLUTION)
    machine.wall += HOUR
    assert clock.sync() == at
    assert (clock.skew, clock.next_sync) == (HOUR, 0)
    machine.wall -= HOUR
    clock.sync()
    assert (clock.skew, clock.next_sync) == (0, at + clocks.RESOLUTION)
