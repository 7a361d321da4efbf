"""A person's no: it closes the question, reaches the model, and ends with the turn."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from policyguard import Denied, Guard, Refused
from policyguard.model.event import Event

POLICY = """
policyguard: 1
name: denials
patterns: {token: "tok_[a-z]+"}
journal: {redact: [token]}
rules:
  deploy: {tools: [deploy], effect: ask, approval: {within: 10m}}
  wire: {tools: [wire], effect: ask, approval: {from: [lead], count: 2, within: 10m}}
budgets:
  steps: {tools: [step], calls: 1, effect: ask}
"""
SECOND = 10**9


class Clock:
    now = 10**18

    def __call__(self) -> int:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def policy(tmp_path: Path) -> Path:
    file = tmp_path / "policy.yaml"
    file.write_text(POLICY, "utf-8")
    return file


def test_a_denied_call_is_refused_without_being_asked_about(policy: Path, clock: Clock) -> None:
    with Guard.load(policy, clock=clock) as guard:
        session = guard.session("s")
        asked = session.check("deploy", {"to": "live"})
        assert asked.effect == "ask"
        assert session.deny(asked, by="ann", message="wait for the release\x1b[31m notes")
        assert guard.questions() == ()
        again = session.check("deploy", {"to": "live"})
        assert again.effect == "block"
        assert again.structured["reason"] == "denied"
        assert again.violations[0].text == "denied by ann: wait for the release [31m notes"
        assert guard.questions() == ()
        other = session.check("deploy", {"to": "test"})
        assert other.effect == "ask"


def test_the_model_reads_a_no_with_its_next_result(policy: Path, clock: Clock) -> None:
    with Guard.load(policy, clock=clock) as guard:
        session = guard.session("s")
        session.deny(session.check("deploy", {}), by="ann", message="not on a Friday")
        advice = [session.record(session.check("look"), result="fine").advice for _ in range(2)]
    assert advice == [
        "`deploy`, which waited for an approval, was denied by ann: not on a Friday",
        "",
    ]


def test_the_model_reads_a_yes_unless_it_has_made_the_call(policy: Path, clock: Clock) -> None:
    with Guard.load(policy, clock=clock) as guard:
        session = guard.session("s")
        session.approve(session.check("deploy", {"to": "a"}), by="ann")
        session.approve(session.check("deploy", {"to": "b"}), by="ann")
        recorded = session.record(session.check("deploy", {"to": "b"}), result="done")
    assert recorded.advice == (
        "`deploy`, which waited for an approval, is approved by ann: make the same call again"
    )


def test_the_model_reads_the_beginning_of_a_long_name(tmp_path: Path) -> None:
    file = tmp_path / "policy.yaml"
    file.write_text(
        "policyguard: 1\nname: n\nrules: {all: {when: call.args.n == 1, effect: ask}}\n"
    )
    with Guard.load(file) as guard:
        session = guard.session("s")
        session.deny(session.check("x" * 99, {"n": 1}), by="ann")
        advice = session.record(session.check("look", {"n": 2}), result="fine").advice
    assert advice == (
        f"`{'x' * 80}`, which waited for an approval, was denied by ann; do without it"
    )


def test_a_no_ends_with_the_turn_or_with_the_time_for_answers(policy: Path, clock: Clock) -> None:
    with Guard.load(policy, clock=clock) as guard:
        session = guard.session("s")
        assert session.deny(session.check("deploy", {}), by="ann")
        assert session.check("deploy", {}).effect == "block"
        session.turn()
        asked = session.check("deploy", {})
        assert asked.effect == "ask"
        session.deny(asked, by="ann")
        clock.now += 600 * SECOND
        assert session.check("deploy", {}).effect == "block"
        clock.now += SECOND
        assert session.check("deploy", {}).effect == "ask"


def test_the_first_answer_counts(policy: Path, clock: Clock) -> None:
    with Guard.load(policy, clock=clock) as guard:
        session = guard.session("s")
        asked = session.check("deploy", {})
        assert session.deny(asked, by="ann")
        assert not session.deny(asked, by="bob")
        assert not session.approve(asked, by="bob")
        assert session.check("deploy", {}).violations[0].text == "denied by ann"


def test_a_no_needs_the_label_but_not_the_number(policy: Path, clock: Clock) -> None:
    with Guard.load(policy, clock=clock) as guard:
        session = guard.session("s")
        asked = session.check("wire", {"cents": 1})
        assert not session.deny(asked, by="eve")
        session.approve(asked, by="ann", labels=["lead"])
        assert session.deny(asked, by="bob", labels=["lead", "staff"])
        assert session.check("wire", {"cents": 1}).effect == "block"


def test_an_expired_question_is_not_denied(policy: Path, clock: Clock) -> None:
    with Guard.load(policy, clock=clock) as guard:
        session = guard.session("s")
        asked = session.check("deploy", {})
        clock.now += 601 * SECOND
        assert not session.deny(asked, by="ann")
        assert session.check("deploy", {}).effect == "ask"


def test_of_too_many_denied_calls_the_first_is_asked_about_again(
    policy: Path, clock: Clock
) -> None:
    policy.write_text(f"{POLICY}bounds: {{window_entries: 2}}\n", "utf-8")
    with Guard.load(policy, clock=clock) as guard:
        session = guard.session("s")
        for place in ("a", "b", "c"):
            assert session.deny(session.check("deploy", {"to": place}), by="ann")
        effects = [session.preview("deploy", {"to": place}).effect for place in ("a", "b", "c")]
    assert effects == ["ask", "block", "block"]


def test_a_denied_budget_is_not_raised(policy: Path, clock: Clock) -> None:
    with Guard.load(policy, clock=clock) as guard:
        session = guard.session("s")
        session.record(session.check("step"), result="1")
        assert session.deny(session.check("step"), by="ann", message="enough")
        assert session.check("step").effect == "block"


def test_a_no_survives_its_process_and_is_redacted(policy: Path, tmp_path: Path) -> None:
    store = tmp_path / "state" / "store.db"
    events: list[Event] = []
    with Guard.load(policy, store=store, listener=events.append) as guard:
        session = guard.session("s")
        session.deny(session.check("deploy", {}), by="ann", message="tok_abc is stale")
    assert [type(one) for one in events][-2:] == [Refused, Denied]
    with Guard.load(policy, store=store) as guard:
        again = guard.session("s").check("deploy", {})
    assert again.effect == "block"
    assert again.violations[0].text == "denied by ann: [token] is stale"
    journals = b"".join(
        file.read_bytes() for file in (tmp_path / "state").rglob("*") if file.is_file()
    )
    assert b"tok_abc" not in journals


def test_a_copy_of_a_journal_asks_nothing(policy: Path, tmp_path: Path) -> None:
    store = tmp_path / "state" / "store.db"
    with Guard.load(policy, store=store) as guard:
        asked = guard.session("s").check("deploy", {})
    (journal,) = (tmp_path / "state" / "journal").iterdir()
    shutil.copy(journal, journal.with_suffix(".bak"))
    (journal.parent / f"{'0' * 32}.jsonl").mkdir()
    with Guard.load(policy, store=store) as guard:
        questions = guard.questions(also_closed=True)
    assert [(one.session, one.call) for one in questions] == [("s", asked.id)]


def test_only_a_call_that_asks_can_be_denied(policy: Path) -> None:
    with Guard.load(policy) as guard:
        session = guard.session("s")
        with pytest.raises(ValueError, match="does not wait for an answer"):
            session.deny(session.check("look"), by="ann")


def test_a_no_holds_against_a_grant_until_the_turn_ends(policy: Path, clock: Clock) -> None:
    with Guard.load(policy, clock=clock) as guard:
        session = guard.session("s")
        asked = session.check("step", {"n": 1}) and session.check("step", {"n": 2})
        session.deny(asked, by="ann")
        other = session.check("step", {"n": 3})
        session.approve(other, by="bo", remember="tool", expires=3600)
        assert session.check("step", {"n": 4}).grants
        assert session.check("step", {"n": 2}).effect == "block"
        session.turn()
        assert session.check("step", {"n": 2}).grants


def test_a_no_holds_against_a_grant_of_the_same_call(policy: Path, clock: Clock) -> None:
    with Guard.load(policy, clock=clock) as guard:
        session = guard.session("s")
        asked = session.check("deploy", {})
        session.approve(asked, by="ann", remember="tool", expires=3600)
        session.deny(asked, by="ann")
        assert session.check("deploy", {}).effect == "block"
        assert session.check("deploy", {"to": "test"}).grants
