"""A call is reported by its decision, the decision's id or the host's id; other ids are errors."""

from __future__ import annotations

from pathlib import Path

import pytest

from policyguard import Guard
from policyguard.model.event import Admitted, Event, Refused

POLICY = """
policyguard: 1
name: ids
budgets: {three: {calls: 3}}
rules: {no: {tools: [no], effect: block}}
bounds: {sessions: 2}
"""


@pytest.fixture(params=[True, False], ids=["journal", "memory"])
def guard(request: pytest.FixtureRequest, tmp_path: Path) -> Guard:
    return load(tmp_path, durable=request.param)


def load(folder: Path, *, durable: bool) -> Guard:
    file = folder / "policy.yaml"
    file.write_text(POLICY)
    return Guard.load(file, store=folder / "state" / "store.db" if durable else None)


def test_call_can_be_reported_by_the_hosts_id(guard: Guard) -> None:
    session = guard.session("s")
    first = session.check("x", call="toolu_01")
    second = session.check("x", call="call c1")
    assert (first.id, second.id) == ("c1", "c2")
    assert session.record("call c1", result="the second").counted
    assert session.record("toolu_01", result="the first").counted
    session.release(session.check("x", call="toolu_02"))
    session.check("x", call="toolu_03")
    session.release("toolu_03")
    assert session.check("x").allowed


def test_call_can_be_reported_by_the_decision_id(guard: Guard) -> None:
    session = guard.session("s")
    decision = session.check("x", call="toolu_01")
    assert session.record(decision.id, result="fine").counted


def test_events_carry_the_hosts_id(guard: Guard) -> None:
    events: list[Event] = []
    guard.on(events.append, Admitted, Refused)
    session = guard.session("s")
    session.check("x", call="toolu_01")
    session.check("no", call="toolu_02")
    session.check("x")
    assert [event.host_call for event in events] == ["toolu_01", "toolu_02", ""]  # type: ignore[union-attr]


def test_another_process_finds_a_call_by_the_hosts_id(tmp_path: Path) -> None:
    with load(tmp_path, durable=True) as first:
        first.session("s").check("x", {"n": 1}, call="toolu_01", batch="b")
    with load(tmp_path, durable=True) as second:
        assert second.session("s").record("toolu_01", result="fine").counted


def test_host_id_in_flight_cannot_be_reused(guard: Guard) -> None:
    session = guard.session("s")
    session.check("x", call="toolu_01")
    with pytest.raises(ValueError, match="`toolu_01` is in flight: report it first"):
        session.check("x", call="toolu_01")
    session.record("toolu_01", result="fine")
    assert session.check("x", call="toolu_01").allowed
    assert session.record("toolu_01", result="fine").counted
    assert [session.check("x").allowed for _ in range(2)] == [True, False]


@pytest.mark.parametrize("call_id", ["toolu_99", "c9", ""])
def test_unknown_id_is_an_error(guard: Guard, call_id: str) -> None:
    session = guard.session("s")
    session.check("x")
    for report in (lambda: session.record(call_id, result="?"), lambda: session.release(call_id)):
        with pytest.raises(LookupError, match=f"no call `{call_id}` in session `s`"):
            report()


def test_reported_host_id_is_unknown_afterwards(guard: Guard) -> None:
    session = guard.session("s")
    session.check("x", call="toolu_01")
    session.record("toolu_01", result="fine")
    with pytest.raises(LookupError, match="it has been reported, or was never admitted"):
        session.record("toolu_01", result="again")


def test_report_of_a_finished_or_refused_call_is_not_counted(guard: Guard) -> None:
    session = guard.session("s")
    decision, refused = session.check("x"), session.check("no")
    assert session.record(decision, result="fine").counted
    assert not session.record(decision, result="again").counted
    assert not session.record(refused, result="never").counted


def test_preview_cannot_be_reported(guard: Guard) -> None:
    session = guard.session("s")
    with pytest.raises(LookupError, match="`preview` admits nothing"):
        session.record(session.preview("x"), result="fine")


def test_decision_of_an_ended_session_is_rejected_by_its_successor(guard: Guard) -> None:
    old = guard.session("s")
    stale, refused = old.check("x"), old.check("no")
    old.end()
    closed = old.check("x")
    session = guard.session("s")
    current = [session.check("x") for _ in range(3)]
    for decision in (stale, refused, closed):
        with pytest.raises(LookupError):
            session.record(decision, error="stale")
    assert not {stale.id, refused.id} & {decision.id for decision in current}
    assert all(session.record(decision, result="fine").counted for decision in current)


def test_call_ids_stay_unique_across_many_sessions(guard: Guard) -> None:
    stale = guard.session("s").check("x")
    guard.session("s").end()
    for number in range(5):
        guard.session(f"other {number}").end()
    session = guard.session("s")
    assert session.check("x").id != stale.id
    with pytest.raises(LookupError):
        session.record(stale, result="stale")


def test_calls_with_other_ids_in_a_journal_are_numbered_too(tmp_path: Path) -> None:
    with load(tmp_path, durable=True) as first:
        assert first.session("s").check("no").id == "c1"
        first._journal.write(Refused("s", None, "other", "no", {}))  # type: ignore[union-attr]  # it has one
    with load(tmp_path, durable=True) as second:
        assert second.session("s").check("no").id == "c3"


def test_numbers_of_a_session_that_was_used_again_raise_no_others(guard: Guard) -> None:
    for name, count in (("a", 5), ("b", 1), ("a", 1), ("c", 0)):
        session = guard.session(name)
        for _ in range(count):
            session.check("no")
        session.end()
    assert guard.session("d").check("no").id == "c2"


def test_decision_of_another_guard_is_rejected(tmp_path: Path) -> None:
    first, second = load(tmp_path, durable=False), load(tmp_path, durable=False)
    stale = first.session("s").check("x", {"n": 1})
    session = second.session("s")
    decision = session.check("x", {"n": 1})
    assert decision.id == stale.id
    with pytest.raises(LookupError, match="by another guard; report it there"):
        session.record(stale, result="stale")
    with pytest.raises(LookupError, match="by another guard; report it there"):
        session.release(stale)
    assert session.record(decision, result="fine").counted


def test_decision_is_reported_to_the_next_guard_of_the_store(tmp_path: Path) -> None:
    with load(tmp_path, durable=True) as first:
        decision = first.session("s").check("x", {"n": 1})
    with load(tmp_path, durable=True) as second:
        assert second.session("s").record(decision, result="fine").counted
