"""Calls that are stopped after they began: they stay charged, and say nothing about the agent."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path

import pytest

from policyguard import CallRefused, Guard, Session
from policyguard.compiler import compile_policy
from policyguard.guard.replay import ReplayGuard
from policyguard.model.event import Admitted, Completed, Released, SessionStarted
from tests.guard.running.time_limits import EventLog

POLICY = """
policyguard: 1
name: cancelled
limits:
  default:
    repeat: {max: 3, window: 10, same: call}
    failures: {max: 2}
  tools:
    timed: {timeout: 1h}
    probed: {outage: {max: 1, within: 1h, cooldown: 1s}}
learn: {ban: call, corroborate: 1}
budgets:
  mails: {tools: [send, timed], calls: 3}
  good: {tools: [good], when: outcome.ok, calls: 2}
  money: {tools: [pay], cost: 10, reserve: 4}
rules:
  failed: {tools: [deploy], when: session.failures > 0}
"""


@pytest.fixture
def log() -> EventLog:
    return EventLog()


@pytest.fixture
def session(tmp_path: Path, log: EventLog) -> Session:
    file = tmp_path / "policy.yaml"
    file.write_text(POLICY)
    return Guard.load(file, listener=log).session("a")


def run_interrupted(session: Session, tool: str, number: int, error: type[BaseException]) -> None:
    def fn() -> None:
        raise error

    with pytest.raises(error):
        session.run(tool, {"n": number}, fn)


async def arun_cancelled(session: Session, tool: str, number: int = 0) -> None:
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(session.arun(tool, {"n": number}, lambda: asyncio.sleep(60)), 0.02)


@pytest.mark.parametrize("tool", ["send", "timed"])
@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit, asyncio.CancelledError])
def test_interrupted_call_stays_counted(
    session: Session, log: EventLog, tool: str, error: type[BaseException]
) -> None:
    for number in range(3):
        run_interrupted(session, tool, number, error)
    assert not session.check(tool, {"n": 3})
    assert log.of_type(Released) == []
    assert {(done.state, done.ok, done.blame) for done in log.of_type(Completed)} == {
        ("cancelled", None, "")
    }


def test_an_interrupted_call_is_no_failure(session: Session) -> None:
    run_interrupted(session, "send", 0, KeyboardInterrupt)
    assert session.check("deploy")


def test_an_ended_session_has_no_calls_in_flight(session: Session) -> None:
    assert session.check("send", call="toolu_1")
    assert list(session.in_flight) == ["toolu_1"]
    session.end()
    assert session.in_flight == {}


@pytest.mark.parametrize("tool", ["send", "timed"])
def test_call_that_its_caller_gives_up_stays_counted(
    session: Session, log: EventLog, tool: str
) -> None:
    async def main() -> None:
        for number in range(3):
            await arun_cancelled(session, tool, number)
        with pytest.raises(CallRefused):
            await session.arun(tool, {"n": 3}, lambda: asyncio.sleep(0))

    asyncio.run(main())
    assert [done.state for done in log.of_type(Completed)] == ["cancelled"] * 3


def test_decorated_calls_stay_counted(session: Session) -> None:
    @session.guard.tool
    async def send(n: int) -> None:
        await asyncio.sleep(60)

    @session.guard.tool
    def timed(n: int) -> None:
        raise SystemExit

    async def main() -> None:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(send(1), 0.02)

    with session:
        asyncio.run(main())
        for number in range(2):
            with pytest.raises(SystemExit):
                timed(number)
        with pytest.raises(CallRefused):
            timed(2)


@pytest.mark.parametrize("close", [True, False])
def test_call_whose_coroutine_is_closed_stays_counted(session: Session, close: bool) -> None:
    for number, tool in enumerate(["send", "timed", "send"]):
        loop = asyncio.new_event_loop()
        task = loop.create_task(session.arun(tool, {"n": number}, lambda: asyncio.sleep(60)))
        loop.run_until_complete(asyncio.sleep(0.01))
        if close:
            task.get_coro().close()
        else:
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                loop.run_until_complete(task)
        loop.close()
    assert not session.check("send", {"n": 3})


def test_call_whose_loop_is_closed_is_reported(session: Session, log: EventLog) -> None:
    loop = asyncio.new_event_loop()
    task = loop.create_task(session.arun("timed", {}, lambda: asyncio.sleep(60)))
    loop.run_until_complete(asyncio.sleep(0.1))
    loop.close()
    task.get_coro().close()
    assert type(log.events[-1]) is Completed


def test_reserve_and_estimate_are_kept(session: Session) -> None:
    run_interrupted(session, "pay", 1, SystemExit)
    decision = session.check("pay", {"n": 2}, estimate={"cost": 5})
    assert decision
    assert session.record(decision, error=KeyboardInterrupt()).outcome.state == "cancelled"
    assert not session.check("pay", {"n": 3})


@pytest.mark.parametrize("error", [SystemExit, OSError])
def test_known_cost_is_charged(session: Session, error: type[BaseException]) -> None:
    def fn() -> None:
        raise error

    with pytest.raises(error):
        session.run("pay", {}, fn, cost=6)
    assert session.check("pay", {"n": 1})
    assert not session.check("pay", {"n": 2})


def test_timed_out_call_keeps_its_reserve_while_it_runs(tmp_path: Path) -> None:
    file = tmp_path / "policy.yaml"
    file.write_text(POLICY.replace("timeout: 1h", "timeout: 20ms").replace("[pay]", "[timed]"))
    session, gate = Guard.load(file).session("a"), threading.Event()
    for number in range(2):
        with pytest.raises(TimeoutError):
            session.run("timed", {"n": number}, lambda: gate.wait(30))
    decision = session.check("timed", {"n": 3})
    gate.set()
    assert "budgets/money" in [violation.id for violation in decision.violations]


def test_budget_of_successes_counts_what_is_unknown(session: Session) -> None:
    for number in range(2):
        run_interrupted(session, "good", number, SystemExit)
    assert not session.check("good", {"n": 2})


def test_cancelled_call_ends_no_streak_and_teaches_nothing(session: Session) -> None:
    session.record(session.check("x", {"n": 1}), error="broken", blame="agent")
    for number in range(2, 5):
        decision = session.check("x", {"n": number})
        assert not session.record(decision, error=SystemExit()).learned
    assert session.check("x", {"n": 2})
    session.record(session.check("x", {"n": 6}), error="broken", blame="agent")
    assert [v.id for v in session.check("x", {"n": 7}).violations] == ["limits/default/failures"]


def test_cancelled_call_counts_as_a_repetition(session: Session) -> None:
    for _ in range(3):
        run_interrupted(session, "x", 0, SystemExit)
    assert [v.id for v in session.check("x", {"n": 0}).violations] == ["limits/default/repeat"]


ENVELOPE = "outcomes: {envelope: [{state: failure, pattern: '^FAILED:'}]}\n"


@pytest.mark.parametrize(
    ("outcomes", "text", "payload"),
    [("", "SystemExit: stop", None), (ENVELOPE, "CANCELLED: SystemExit: stop", "SystemExit: stop")],
    ids=["plain", "envelope"],
)
def test_the_model_is_told_that_a_call_was_stopped(
    tmp_path: Path, outcomes: str, text: str, payload: str | None
) -> None:
    file = tmp_path / "policy.yaml"
    file.write_text(POLICY + outcomes)
    session = Guard.load(file).session("a")
    recorded = session.record(session.check("x"), error=SystemExit("stop"))
    assert recorded.text == text
    assert recorded.outcome.ok
    assert (recorded.outcome.error, recorded.outcome.payload) == ("SystemExit: stop", payload)
    begun = session.check("x", {"n": 1})
    session.close()
    recorded = session.record(begun, error=SystemExit("stop"))
    assert recorded.text == text
    assert not recorded.counted


def test_result_rules_read_the_outcome_of_a_cancelled_call(tmp_path: Path) -> None:
    file = tmp_path / "policy.yaml"
    file.write_text(
        "policyguard: 1\nname: stopped\nresult_rules:\n"
        "  stop: {tools: [job], when: outcome.error.endsWith('stop'), effect: advise,"
        " message: it was stopped}\n"
    )
    session = Guard.load(file).session("a")
    for number, (word, advice) in enumerate([("stop", "it was stopped"), ("leave", "")]):
        recorded = session.record(session.check("job", {"n": number}), error=SystemExit(word))
        assert (recorded.advice, recorded.errors) == (advice, ())
    begun = session.check("job")
    session.close()
    assert session.record(begun, error=SystemExit("stop")).outcome.state == "cancelled"


@pytest.mark.parametrize(("outcomes", "payload"), [("", None), (ENVELOPE, "")])
def test_a_cancelled_call_may_have_no_text_at_all(
    tmp_path: Path, outcomes: str, payload: str | None
) -> None:
    file = tmp_path / "policy.yaml"
    file.write_text(POLICY + outcomes)
    session = ReplayGuard(compile_policy(file)).start_session(SessionStarted("a"))
    assert session.check(Admitted("a", call="c", tool="x", args={})).allowed
    outcome = session.record(Completed("a", call="c", state="cancelled")).outcome
    assert (outcome.state, outcome.error, outcome.payload) == ("cancelled", "", payload)


def test_cancelled_probe_allows_another(tmp_path: Path) -> None:
    file, now = tmp_path / "policy.yaml", [10**18]
    file.write_text(POLICY)
    session = Guard.load(file, clock=lambda: now[0]).session("a")
    session.record(session.check("probed"), error="down", blame="harness")
    assert not session.check("probed")
    now[0] += 2 * 10**9
    session.record(session.check("probed"), error=SystemExit())
    probe = session.check("probed", {"again": True})
    assert probe  # the breaker is still half-open: neither closed nor open
    assert not session.check("probed", {"third": True})


def test_call_that_ends_late_is_recorded_once_with_its_result(
    session: Session, log: EventLog
) -> None:
    async def stubborn() -> str:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            return "done all the same"
        return ""

    async def main() -> None:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(session.arun("timed", {}, stubborn), 0.02)

    asyncio.run(main())
    (done,) = log.of_type(Completed)
    assert (done.ok, done.text) == (True, "done all the same")


def test_call_that_never_begins_is_released(
    session: Session, log: EventLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    def start(self: threading.Thread) -> None:
        raise MemoryError

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", start)
        for number in range(5):
            with pytest.raises(MemoryError):
                session.run("timed", {"n": number}, int)
    assert len(log.of_type(Released)) == 5
    assert session.check("timed")


def test_journal_restores_cancelled_calls(tmp_path: Path) -> None:
    file = tmp_path / "policy.yaml"
    file.write_text(POLICY)
    with Guard.load(file, store=tmp_path / "store.db") as guard, guard.session("a") as session:
        for number in range(3):
            run_interrupted(session, "send", number, KeyboardInterrupt)
        run_interrupted(session, "pay", 0, SystemExit)
    with Guard.load(file, store=tmp_path / "store.db") as guard, guard.session("a") as session:
        assert not session.check("send", {"n": 9})
        assert session.check("pay", {"n": 8})
        assert not session.check("pay", {"n": 9})
        assert session._state.cel_session["failures"] == 0
