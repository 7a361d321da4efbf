"""Approvals: for one call, used once, with enough approvers, in time."""

from __future__ import annotations

import asyncio
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
  money: {tools: [buy], cost: 1.0, effect: ask, extend: 0.5}
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


def open_session(tmp_path: Path, clock: Clock, **options: Any) -> Session:
    file = tmp_path / "policy.yaml"
    file.write_text(POLICY)
    return Guard.load(file, clock=clock, **options).session("s")


def test_approval_is_for_one_call_and_used_once(tmp_path: Path, clock: Clock) -> None:
    session = open_session(tmp_path, clock)
    decision = session.check("plain", {"n": 1})
    assert (decision.effect, decision.allowed) == ("ask", False)
    assert session.approve(decision, by="ann") is True
    assert not session.check("plain", {"n": 2}).allowed
    assert session.check("plain", {"n": 1}).allowed
    assert not session.check("plain", {"n": 1}).allowed


def test_approval_without_a_pending_call_has_no_effect(tmp_path: Path, clock: Clock) -> None:
    session = open_session(tmp_path, clock)
    decision = session.check("plain", {"n": 1})
    assert session.approve(decision, by="ann") is True
    assert session.check("plain", {"n": 1}).allowed
    assert session.approve(decision, by="bo") is False, "it has been used"
    assert not session.check("plain", {"n": 1}).allowed
    assert session.approve(session.preview("plain", {"n": 2}), by="ann") is False
    assert not session.check("plain", {"n": 2}).allowed, "it was only previewed"
    assert session.approve(session.preview("plain", {"n": 2}), by="ann") is True, (
        "now it is pending"
    )
    assert session.check("plain", {"n": 2}).allowed
    assert not session.check("plain", {"n": 2}).allowed


def test_approval_is_dropped_with_its_evicted_call(tmp_path: Path, clock: Clock) -> None:
    """The oldest pending call is evicted first, with its approval."""
    file = tmp_path / "policy.yaml"
    file.write_text(
        "policyguard: 1\nname: few\nbounds: {window_entries: 2}\n"
        "rules: {ask: {tools: [plain], effect: ask}}\n"
    )
    session = Guard.load(file, clock=clock).session("s")
    assert session.approve(session.check("plain", {"n": 0}), by="ann") is True
    session.check("plain", {"n": 1})
    assert session.preview("plain", {"n": 0}).allowed
    session.check("plain", {"n": 2})
    assert not session.check("plain", {"n": 0}).allowed


def test_approval_needs_the_required_labels_and_count(tmp_path: Path, clock: Clock) -> None:
    session = open_session(tmp_path, clock)
    decision = session.check("pay", {"amount": 5})
    assert session.approve(decision, by="bo", labels=["intern"]) is False
    assert not session.check("pay", {"amount": 5}).allowed
    assert session.approve(decision, by="ann", labels=["lead"]) is True
    assert session.check("pay", {"amount": 5}).allowed

    decision = session.check("wire", {})
    assert session.approve(decision, by="ann", labels=["lead"]) is False
    assert session.approve(decision, by="ann", labels=["lead"]) is False, "one approver counts once"
    assert session.approve(decision, by="cy", labels=["lead"]) is True
    assert session.check("wire", {}).allowed


def test_white_space_makes_no_second_person(tmp_path: Path, clock: Clock) -> None:
    session = open_session(tmp_path, clock)
    decision = session.check("wire", {})
    assert not session.approve(decision, by="ann", labels=["lead"])
    assert not session.approve(decision, by=" ann\n", labels=["lead"])
    for blank in ("", " \t"):
        with pytest.raises(ValueError, match="`by` is empty: name the person"):
            session.approve(decision, by=blank, labels=["lead"])
        with pytest.raises(ValueError, match="`by` is empty"):
            session.deny(decision, by=blank, labels=["lead"])
        with pytest.raises(ValueError, match="`by` is empty"):
            session.grant("money", by=blank)
    assert session.approve(decision, by="bo", labels=["lead"])
    assert session.check("wire", {}).allowed


def test_late_approval_is_rejected_and_can_be_given_after_another_check(
    tmp_path: Path, clock: Clock
) -> None:
    session = open_session(tmp_path, clock)
    decision = session.check("pay", {"amount": 5})
    clock.wait(11)
    assert session.approve(decision, by="ann", labels=["lead"]) is False
    assert not session.check("pay", {"amount": 5}).allowed
    assert session.approve(decision, by="ann", labels=["lead"]) is True
    assert session.check("pay", {"amount": 5}).allowed


def test_approval_expires(tmp_path: Path, clock: Clock) -> None:
    session = open_session(tmp_path, clock)
    decision = session.check("pay", {"amount": 5})
    assert session.approve(decision, by="ann", labels=["boss"]) is True
    clock.wait(11)
    assert not session.check("pay", {"amount": 5}).allowed


def test_blocked_call_cannot_be_approved(tmp_path: Path, clock: Clock) -> None:
    session = open_session(tmp_path, clock)
    decision = session.check("pay", {"amount": 500})
    assert decision.effect == "block"
    with pytest.raises(
        ValueError, match=r"is refused \(block\), and an approval waives \*ask\* only"
    ):
        session.approve(decision, by="ann", labels=["lead"])


def test_approval_extends_the_budget_only_for_its_key(tmp_path: Path, clock: Clock) -> None:
    session = open_session(tmp_path, clock)
    for _ in range(2):
        assert session.check("step", {"page": "a"}).allowed
    decision = session.check("step", {"page": "a"})
    assert decision.effect == "ask"
    assert session.approve(decision, by="ann")
    assert session.approve(decision, by="bo")
    for _ in range(2):
        assert session.check("step", {"page": "a"}).allowed
    assert not session.check("step", {"page": "a"}).allowed, "two were added, once"
    for _ in range(2):
        assert session.check("step", {"page": "b"}).allowed
    assert not session.check("step", {"page": "b"}).allowed


def test_approval_extends_cost_and_time_budgets_in_their_units(
    tmp_path: Path, clock: Clock
) -> None:
    events: list[Any] = []
    session = open_session(tmp_path, clock, listener=events.append)
    session.record(session.check("buy"), cost=1.2)
    assert session.approve(session.check("buy"), by="ann")
    session.record(session.check("buy"), cost=0.4)
    assert session.check("buy").effect == "ask"
    clock.wait(61)
    decision = session.check("work")
    assert session.approve(decision, by="ann")
    assert session.check("work").allowed
    clock.wait(28)
    assert session.check("work").allowed
    clock.wait(2)
    assert not session.check("work").allowed
    assert [event.amount for event in events if isinstance(event, Granted)] == [0.5, 1800.0]


def test_grant_lifts_a_halt_but_approval_does_not(tmp_path: Path, clock: Clock) -> None:
    session = open_session(tmp_path, clock)
    for _ in range(2):
        assert session.check("step", {"page": "a"}).allowed
    decision = session.check("step", {"page": "a"})
    assert session.check("stop").effect == "halt"
    assert session.approve(decision, by="ann")
    assert session.check("read").effect == "halt"
    session.grant("steps", by="ann")
    assert session.check("read").allowed


def test_approval_resets_the_escalation(tmp_path: Path, clock: Clock) -> None:
    """Otherwise earlier refusals would halt the session."""
    file = tmp_path / "policy.yaml"
    file.write_text(
        "policyguard: 1\nname: steps\n"
        "budgets: {steps: {calls: 2, effect: ask, extend: 2, halt_at: 6}}\n"
    )
    session = Guard.load(file, clock=clock).session("s")
    for number in range(2):
        session.record(session.check("step", {"n": number}), error="no")
    decisions = [session.check("step", {"n": 2}) for _ in range(2)]
    assert session.approve(decisions[-1], by="ann")
    for number in range(2, 4):
        session.record(session.check("step", {"n": number}), error="no")
    assert [session.check("step", {"n": 4}).effect for _ in range(4)] == [
        "ask",
        "ask",
        "ask",
        "halt",
    ]


def test_grant_adds_the_amount_of_extend(tmp_path: Path, clock: Clock) -> None:
    session = open_session(tmp_path, clock)
    session.record(session.check("buy"), cost=1.0)
    session.grant("money", by="ann")
    assert session.check("buy").allowed
    with pytest.raises(KeyError, match="no budget `mone`"):
        session.grant("mone", by="ann")


def test_call_runs_if_otherwise_allows_and_there_is_no_approver(
    tmp_path: Path, clock: Clock
) -> None:
    session = open_session(tmp_path, clock)
    allowed = session.check("mail", {"to": "x"})
    assert (allowed.effect, allowed.allowed) == ("ask", True)
    assert "since no one could be asked" in allowed.message
    assert not session.check("mail", {"all": True}).allowed, (
        "the other rule refuses without approval"
    )


def test_call_waits_for_an_answer_once_people_are_said_to_give_them(
    tmp_path: Path, clock: Clock
) -> None:
    session = open_session(tmp_path, clock)
    session.guard.expect_answers()
    assert not session.check("mail", {"to": "x"}).allowed
    clock.wait(6)
    assert session.check("mail", {"to": "x"}).allowed


def test_call_allowed_by_otherwise_ends_the_refusal_streak(tmp_path: Path, clock: Clock) -> None:
    file = tmp_path / "policy.yaml"
    file.write_text(POLICY + "limits: {default: {refusals: {max: 1}}}\n")
    session = Guard.load(file, clock=clock).session("s")
    assert session.check("plain").effect == "ask"
    assert session.check("mail", {"to": "x"}).allowed, "an allowed call ends the streak"
    assert session.check("plain").effect == "ask"
    assert session.check("plain").effect == "halt"


def test_otherwise_applies_after_waiting_for_the_approver(tmp_path: Path, clock: Clock) -> None:
    decisions: list[Decision] = []
    session = open_session(tmp_path, clock, approver=lambda _, decision: decisions.append(decision))
    assert not session.check("mail", {"to": "x"}).allowed
    clock.wait(4)
    assert not session.check("mail", {"to": "x"}).allowed
    clock.wait(2)
    assert session.check("mail", {"to": "x"}).allowed
    assert [decision.tool for decision in decisions] == ["mail", "mail"]


@pytest.mark.parametrize("blocking", [True, False])
def test_otherwise_asks_no_one_again_after_waiting(
    tmp_path: Path, clock: Clock, blocking: bool
) -> None:
    asked: list[str] = []
    session = open_session(tmp_path, clock, approver=lambda *_: asked.append("mail"))
    for _ in range(2):
        if blocking:
            decision = session.check("mail", {"to": "x"})
        else:
            decision = asyncio.run(session.acheck("mail", {"to": "x"}))
        clock.wait(6)
    assert (decision.effect, decision.allowed) == ("ask", True)
    assert asked == ["mail"]


def test_approver_can_approve_immediately(tmp_path: Path, clock: Clock) -> None:
    events: list[Any] = []

    def approve(session: Session, decision: Decision) -> None:
        session.approve(decision, by="program", labels=["lead"])

    session = open_session(tmp_path, clock, approver=approve, listener=events.append)
    assert session.check("pay", {"amount": 5}).allowed
    assert [type(event) for event in events][1:] == [Refused, Approved, Admitted]
    assert session.check("wire", {}).allowed is False, "one approver is not enough"


def test_failing_approver_refuses_and_is_logged(
    tmp_path: Path, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    """Even if it approved before it failed; its error does not become the tool's."""

    def fail(session: Session, decision: Decision) -> None:
        session.approve(decision, by="program", labels=["lead"])
        raise ConnectionError("no connection")

    session = open_session(tmp_path, clock, approver=fail)
    with caplog.at_level(logging.ERROR, "policyguard"):
        decision = session.check("pay", {"amount": 5})
    assert (decision.allowed, decision.effect) == (False, "ask")
    assert decision.errors == (EvalError("approver", "ConnectionError: no connection"),)
    assert "the approver failed on c1" in caplog.text
    assert "no connection" in caplog.text
    with pytest.raises(CallRefused, match="needs an approval"):
        session.run("plain", {}, lambda: "result")


def test_return_value_of_an_approver_is_ignored(tmp_path: Path, clock: Clock) -> None:
    session = open_session(tmp_path, clock, approver=lambda *_: True)
    decision = session.check("plain")
    assert (decision.allowed, decision.errors) == (False, ())


def test_approval_applies_to_calls_with_the_same_fingerprint(tmp_path: Path, clock: Clock) -> None:
    file = tmp_path / "ignoring.yaml"
    file.write_text(
        "policyguard: 1\nname: i\n"
        "classify: {fingerprint: {ignore: [timestamp], fold: [name]}}\n"
        "rules: {book: {tools: [book], effect: ask}}\n"
    )
    session = Guard.load(file, clock=clock).session("s")
    booking = {"room": "A", "name": "Ann", "timestamp": 1}
    assert session.approve(session.check("book", booking), by="ann")
    assert not session.check("book", {**booking, "room": "a"}).allowed
    assert not session.check("book", booking, server="other").allowed
    assert session.check("book", {**booking, "timestamp": 2, "name": " ann"}).allowed


def test_approval_does_not_apply_within_the_tolerance(tmp_path: Path, clock: Clock) -> None:
    file = tmp_path / "tolerant.yaml"
    file.write_text(
        "policyguard: 1\nname: t\nclassify: {fingerprint: {tolerance: {amount: 0.1}}}\n"
        "rules: {pay: {tools: [pay], effect: ask}}\n"
    )
    session = Guard.load(file, clock=clock).session("s")
    decision = session.check("pay", {"amount": 300})
    assert session.approve(decision, by="ann")
    assert not session.check("pay", {"amount": 301}).allowed
    assert session.check("pay", {"amount": 300}).allowed


def test_used_approval_is_used_up_after_a_resume(tmp_path: Path, clock: Clock) -> None:
    """The journal has the fingerprint that was approved, not only the one it was counted under."""
    file = tmp_path / "tolerant.yaml"
    file.write_text(
        "policyguard: 1\nname: t\nclassify: {fingerprint: {tolerance: {amount: 0.1}}}\n"
        "rules: {pay: {tools: [pay], when: call.args.amount > 300, effect: ask}}\n"
    )
    guard = Guard.load(file, clock=clock, store=tmp_path / "store.db")
    session = guard.session("s")
    assert session.check("pay", {"amount": 300}).allowed
    assert session.approve(session.check("pay", {"amount": 301}), by="ann")
    assert session.check("pay", {"amount": 301}).allowed
    guard.close()
    resumed = Guard.load(file, clock=clock, store=tmp_path / "store.db").session("s")
    assert not resumed.check("pay", {"amount": 301}).allowed


def test_a_call_waits_until_all_that_ask_are_content(tmp_path: Path, clock: Clock) -> None:
    file = tmp_path / "policy.yaml"
    file.write_text(POLICY.replace("  plain:", "  large: {tools: [wire], effect: ask}\n  plain:"))
    with Guard.load(file, clock=clock) as guard:
        session = guard.session("s")
        asked = session.check("wire", {})
        assert len(asked.violations) == 2
        assert session.approve(asked, by="ann") is False
        (question,) = guard.questions()
        assert (question.call, question.asked_at) == (asked.id, clock.now / 10**9)
        assert session.approve(asked, by="bo", labels=["lead"]) is False
        assert len(guard.questions()) == 1
        assert session.approve(asked, by="cy", labels=["lead"]) is True
        assert guard.questions() == ()
