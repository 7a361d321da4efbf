"""Who says yes: bound to the call, used once, by enough of the right people, soon enough."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest

from policyguard import CallRefused, Guard, Session
from policyguard.model.decision import Decision, EvalError
from policyguard.model.event import Admitted, Approved, Granted, Refused

POLICY = """
policyguard: 1
name: approvals
rules:
  plain: {tools: [plain], effect: ask}
  lead: {tools: [pay], effect: ask, approval: {from: [lead, boss], within: 10m}}
  two: {tools: [wire], effect: ask, approval: {from: [lead], count: 2}}
  lenient: {tools: [mail], effect: ask, approval: {otherwise: allow}}
  also: {tools: [mail], when: "has(call.args.all)", effect: ask, approval: {}}
  stop: {tools: [stop], when: "true", effect: halt}
  never: {tools: [pay], when: "call.args.amount > 100"}
budgets:
  purse: {tools: [buy], cost: 1.0, effect: ask, extend: 0.5}
  steps: {tools: [step], calls: 2, effect: ask, extend: 2, per: [session, call.args.page]}
  hour: {tools: [work], time: 1h, effect: ask, extend: 30m}
"""
MINUTE = 60 * 10**9


class Clock:
    now = 10**18

    def __call__(self) -> int:
        return self.now

    def wait(self, minutes: float) -> None:
        self.now += round(minutes * MINUTE)


@pytest.fixture
def clock() -> Clock:
    return Clock()


def session_of(tmp_path: Path, clock: Clock, **options: Any) -> Session:
    file = tmp_path / "policy.yaml"
    file.write_text(POLICY)
    return Guard.load(file, clock=clock, **options).session("s")


def test_a_yes_is_bound_to_the_call_and_used_once(tmp_path: Path, clock: Clock) -> None:
    session = session_of(tmp_path, clock)
    asked = session.check("plain", {"n": 1})
    assert (asked.effect, asked.allowed) == ("ask", False)
    assert session.approve(asked, by="ann") is True
    assert not session.check("plain", {"n": 2}).allowed
    assert session.check("plain", {"n": 1}).allowed
    assert not session.check("plain", {"n": 1}).allowed


def test_a_yes_that_nothing_waits_for_counts_nowhere(tmp_path: Path, clock: Clock) -> None:
    session = session_of(tmp_path, clock)
    asked = session.check("plain", {"n": 1})
    assert session.approve(asked, by="ann") is True
    assert session.check("plain", {"n": 1}).allowed
    assert session.approve(asked, by="bo") is False, "it has been used"
    assert not session.check("plain", {"n": 1}).allowed
    assert session.approve(session.preview("plain", {"n": 2}), by="ann") is False
    assert not session.check("plain", {"n": 2}).allowed, "it had only been decided on"
    assert session.approve(session.preview("plain", {"n": 2}), by="ann") is True, "now it is asked"
    assert session.check("plain", {"n": 2}).allowed
    assert not session.check("plain", {"n": 2}).allowed


def test_no_yes_outlives_a_question_that_is_forgotten(tmp_path: Path, clock: Clock) -> None:
    """Of more open questions than are remembered, the oldest goes with what was said to it."""
    file = tmp_path / "policy.yaml"
    file.write_text(
        "policyguard: 1\nname: few\nbounds: {window_entries: 2}\n"
        "rules: {ask: {tools: [plain], effect: ask}}\n"
    )
    session = Guard.load(file, clock=clock).session("s")
    assert session.approve(session.check("plain", {"n": 0}), by="ann") is True
    for n in range(1, 3):
        session.check("plain", {"n": n})
    assert not session.check("plain", {"n": 0}).allowed


def test_it_takes_the_right_people_and_enough_of_them(tmp_path: Path, clock: Clock) -> None:
    session = session_of(tmp_path, clock)
    asked = session.check("pay", {"amount": 5})
    assert session.approve(asked, by="bo", labels=["intern"]) is False
    assert not session.check("pay", {"amount": 5}).allowed
    assert session.approve(asked, by="ann", labels=["lead"]) is True
    assert session.check("pay", {"amount": 5}).allowed

    asked = session.check("wire", {})
    assert session.approve(asked, by="ann", labels=["lead"]) is False
    assert session.approve(asked, by="ann", labels=["lead"]) is False, (
        "whoever says it twice is one"
    )
    assert session.approve(asked, by="cy", labels=["lead"]) is True
    assert session.check("wire", {}).allowed


def test_a_late_answer_is_none_and_the_question_is_put_anew(tmp_path: Path, clock: Clock) -> None:
    session = session_of(tmp_path, clock)
    asked = session.check("pay", {"amount": 5})
    clock.wait(11)
    assert session.approve(asked, by="ann", labels=["lead"]) is False
    assert not session.check("pay", {"amount": 5}).allowed
    assert session.approve(asked, by="ann", labels=["lead"]) is True
    assert session.check("pay", {"amount": 5}).allowed


def test_a_yes_does_not_keep_for_ever(tmp_path: Path, clock: Clock) -> None:
    session = session_of(tmp_path, clock)
    asked = session.check("pay", {"amount": 5})
    assert session.approve(asked, by="ann", labels=["boss"]) is True
    clock.wait(11)
    assert not session.check("pay", {"amount": 5}).allowed


def test_what_blocks_stays(tmp_path: Path, clock: Clock) -> None:
    session = session_of(tmp_path, clock)
    refused = session.check("pay", {"amount": 500})
    assert refused.effect == "block"
    with pytest.raises(ValueError, match="does not need an approval"):
        session.approve(refused, by="ann", labels=["lead"])


def test_a_budget_that_asked_is_raised_in_the_account_that_asked(
    tmp_path: Path, clock: Clock
) -> None:
    session = session_of(tmp_path, clock)
    for _ in range(2):
        assert session.check("step", {"page": "a"}).allowed
    asked = session.check("step", {"page": "a"})
    assert asked.effect == "ask"
    assert session.approve(asked, by="ann")
    assert session.approve(asked, by="bo")
    for _ in range(2):
        assert session.check("step", {"page": "a"}).allowed
    assert not session.check("step", {"page": "a"}).allowed, "two were added, once"
    for _ in range(2):
        assert session.check("step", {"page": "b"}).allowed
    assert not session.check("step", {"page": "b"}).allowed


def test_money_and_time_are_raised_in_their_own_units(tmp_path: Path, clock: Clock) -> None:
    events: list[Any] = []
    session = session_of(tmp_path, clock, listener=events.append)
    session.record(session.check("buy"), cost=1.2)
    assert session.approve(session.check("buy"), by="ann")
    session.record(session.check("buy"), cost=0.4)
    assert session.check("buy").effect == "ask"
    clock.wait(61)
    asked = session.check("work")
    assert session.approve(asked, by="ann")
    assert session.check("work").allowed
    clock.wait(28)
    assert session.check("work").allowed
    clock.wait(2)
    assert not session.check("work").allowed
    assert [event.amount for event in events if isinstance(event, Granted)] == [0.5, 1800.0]


def test_a_yes_lifts_no_halt_and_a_grant_does(tmp_path: Path, clock: Clock) -> None:
    session = session_of(tmp_path, clock)
    for _ in range(2):
        assert session.check("step", {"page": "a"}).allowed
    asked = session.check("step", {"page": "a"})
    assert session.check("stop").effect == "halt"
    assert session.approve(asked, by="ann")
    assert session.check("read").effect == "halt"
    session.grant("steps", by="ann")
    assert session.check("read").allowed


def test_what_was_asked_before_a_yes_is_no_step_after_it(tmp_path: Path, clock: Clock) -> None:
    """Else the questions that were answered would be what halts the next one."""
    file = tmp_path / "policy.yaml"
    file.write_text(
        "policyguard: 1\nname: steps\n"
        "budgets: {steps: {calls: 2, effect: ask, extend: 2, halt_at: 6}}\n"
    )
    session = Guard.load(file, clock=clock).session("s")
    for n in range(2):
        session.record(session.check("step", {"n": n}), error="no")
    asked = [session.check("step", {"n": 2}) for _ in range(2)]
    assert session.approve(asked[-1], by="ann")
    for n in range(2, 4):
        session.record(session.check("step", {"n": n}), error="no")
    assert [session.check("step", {"n": 4}).effect for _ in range(4)] == [
        "ask",
        "ask",
        "ask",
        "halt",
    ]


def test_a_grant_adds_what_extend_says(tmp_path: Path, clock: Clock) -> None:
    session = session_of(tmp_path, clock)
    session.record(session.check("buy"), cost=1.0)
    session.grant("purse", by="ann")
    assert session.check("buy").allowed
    with pytest.raises(KeyError, match="no budget `purs`"):
        session.grant("purs", by="ann")


def test_nobody_there_to_be_asked(tmp_path: Path, clock: Clock) -> None:
    session = session_of(tmp_path, clock)
    allowed = session.check("mail", {"to": "x"})
    assert (allowed.effect, allowed.allowed) == ("ask", True)
    assert "since no one could be asked" in allowed.message
    assert not session.check("mail", {"all": True}).allowed, "the other rule says block"


def test_a_call_that_runs_unasked_is_no_refusal(tmp_path: Path, clock: Clock) -> None:
    file = tmp_path / "policy.yaml"
    file.write_text(POLICY + "limits: {default: {refusals: {max: 1}}}\n")
    session = Guard.load(file, clock=clock).session("s")
    assert session.check("plain").effect == "ask"
    assert session.check("mail", {"to": "x"}).allowed, "what is not refused ends the row"
    assert session.check("plain").effect == "ask"
    assert session.check("plain").effect == "halt"


def test_an_approver_is_waited_for_and_then_otherwise_holds(tmp_path: Path, clock: Clock) -> None:
    seen: list[Decision] = []
    session = session_of(tmp_path, clock, approver=lambda _, decision: seen.append(decision))
    assert not session.check("mail", {"to": "x"}).allowed
    clock.wait(4)
    assert not session.check("mail", {"to": "x"}).allowed
    clock.wait(2)
    assert session.check("mail", {"to": "x"}).allowed
    assert [decision.tool for decision in seen] == ["mail", "mail"]


def test_an_approver_may_answer_at_once(tmp_path: Path, clock: Clock) -> None:
    events: list[Any] = []

    def yes(session: Session, decision: Decision) -> None:
        session.approve(decision, by="program", labels=["lead"])

    session = session_of(tmp_path, clock, approver=yes, listener=events.append)
    assert session.check("pay", {"amount": 5}).allowed
    assert [type(event) for event in events][1:] == [Refused, Approved, Admitted]
    assert session.check("wire", {}).allowed is False, "two people are one too many for a program"


def test_an_approver_that_fails_says_no_and_is_heard_of(
    tmp_path: Path, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    """Its error is neither the tool's nor lost; also where it had said yes before."""

    def broken(session: Session, decision: Decision) -> None:
        session.approve(decision, by="program", labels=["lead"])
        raise ConnectionError("nobody at the door")

    session = session_of(tmp_path, clock, approver=broken)
    with caplog.at_level(logging.ERROR, "policyguard"):
        decision = session.check("pay", {"amount": 5})
    assert (decision.allowed, decision.effect) == (False, "ask")
    assert decision.errors == (EvalError("approver", "ConnectionError: nobody at the door"),)
    assert "the approver failed on c1" in caplog.text
    assert "nobody at the door" in caplog.text
    with pytest.raises(CallRefused, match="needs an approval"):
        session.run("plain", {}, lambda: "result")


def test_what_an_approver_returns_is_no_answer(tmp_path: Path, clock: Clock) -> None:
    session = session_of(tmp_path, clock, approver=lambda *_: True)
    decision = session.check("plain")
    assert (decision.allowed, decision.errors) == (False, ())


def test_a_yes_holds_for_what_the_policy_says_is_the_same_call(
    tmp_path: Path, clock: Clock
) -> None:
    file = tmp_path / "ignoring.yaml"
    file.write_text(
        "policyguard: 1\nname: i\n"
        "classify: {fingerprint: {ignore: [timestamp], fold: [name]}}\n"
        "rules: {book: {tools: [book], effect: ask}}\n"
    )
    session = Guard.load(file, clock=clock).session("s")
    room = {"room": "A", "name": "Ann", "timestamp": 1}
    assert session.approve(session.check("book", room), by="ann")
    assert not session.check("book", {**room, "room": "a"}).allowed
    assert not session.check("book", room, server="other").allowed
    assert session.check("book", {**room, "timestamp": 2, "name": " ann"}).allowed


def test_a_yes_to_one_number_is_no_yes_to_another_within_the_tolerance(
    tmp_path: Path, clock: Clock
) -> None:
    file = tmp_path / "tolerant.yaml"
    file.write_text(
        "policyguard: 1\nname: t\nclassify: {fingerprint: {tolerance: {amount: 0.1}}}\n"
        "rules: {pay: {tools: [pay], effect: ask}}\n"
    )
    session = Guard.load(file, clock=clock).session("s")
    asked = session.check("pay", {"amount": 300})
    assert session.approve(asked, by="ann")
    assert not session.check("pay", {"amount": 301}).allowed
    assert session.check("pay", {"amount": 300}).allowed
