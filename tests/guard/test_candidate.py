"""A candidate policy beside the enforced one: it says how it would differ, and changes nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from policyguard import CandidateDiffered, Guard, PolicyError, Session
from policyguard.compiler import compile_policy
from policyguard.journal.format import decode
from policyguard.report.replay.text import render_text
from policyguard.simulate import Replay
from policyguard.traces import Reader

ENFORCED = """
policyguard: 1
name: enforced
limits: {default: {repeat: {max: 3}}}
rules:
  old: {tools: [old], when: "true"}
  careful: {tools: [careful], effect: ask}
  lenient: {tools: [lenient], effect: ask, approval: {otherwise: allow}}
"""
CANDIDATE = """
policyguard: 1
name: candidate
limits: {default: {repeat: {max: 2}}}
budgets: {calls: {tools: ["*"], calls: 50}}
rules:
  new: {tools: [new], when: "call.args.n > 1"}
  final: {tools: [final], when: "true", effect: halt}
  careful: {tools: [careful], effect: ask}
"""


@pytest.fixture
def policies(tmp_path: Path) -> tuple[Path, Path]:
    enforced, candidate = tmp_path / "enforced.yaml", tmp_path / "candidate.yaml"
    enforced.write_text(ENFORCED)
    candidate.write_text(CANDIDATE)
    return enforced, candidate


def load(policies: tuple[Path, Path], **options: Any) -> tuple[Guard, list[CandidateDiffered]]:
    enforced, candidate = policies
    guard = Guard.load(enforced, candidate=candidate, cache=False, **options)
    differed: list[CandidateDiffered] = []
    guard.on(differed.append, CandidateDiffered)
    return guard, differed


def run(session: Session, tool: str, result: str = "done", **args: Any) -> bool:
    decision = session.check(tool, args)
    if decision:
        session.record(decision, result=result)
    return decision.allowed


def test_what_it_would_refuse_or_allow_is_said(policies: tuple[Path, Path]) -> None:
    guard, differed = load(policies)
    session = guard.session("s")
    assert run(session, "new", n=1)
    assert differed == []
    assert run(session, "new", n=2), "the candidate never acts"
    (newly_refused,) = differed
    assert (newly_refused.call, newly_refused.effect) == ("c2", "block")
    assert newly_refused.violations == ("rules/new",)
    assert newly_refused.policy == "candidate"
    assert (newly_refused.refused, newly_refused.enforced) == (True, "allow")
    assert not newly_refused.counterfactual
    assert not run(session, "old")
    newly_allowed = differed[1]
    assert (newly_allowed.effect, newly_allowed.enforced) == ("allow", "block")
    assert (newly_allowed.refused, newly_allowed.counterfactual) == (False, True)
    assert not newly_allowed.partial


def test_its_state_counts_what_really_ran(policies: tuple[Path, Path]) -> None:
    guard, differed = load(policies)
    session = guard.session("s")
    assert [run(session, "a") for _ in range(4)] == [True, True, True, False]
    (third,) = differed
    assert (third.call, third.violations) == ("c3", ("limits/default/repeat",))


def test_a_halt_of_the_candidate_halts_nothing(policies: tuple[Path, Path]) -> None:
    guard, differed = load(policies)
    session = guard.session("s")
    assert run(session, "final")
    assert [one.effect for one in differed] == ["halt"]
    assert run(session, "b")
    assert len(differed) == 1, "nor does it go on as if it had"


def test_approvals_and_grants_hold_for_both(policies: tuple[Path, Path]) -> None:
    guard, differed = load(policies)
    session = guard.session("s")
    decision = session.check("careful", {"n": 1})
    session.approve(decision, by="ann", remember="tool", expires=60)
    assert run(session, "careful", n=1)
    assert run(session, "careful", n=2)
    assert differed == []


def test_errors_in_the_candidate_change_no_decision(
    policies: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    guard, differed = load(policies)
    session = guard.session("s")
    assert guard._candidate is not None

    def fail(*_: object) -> None:
        raise RuntimeError("defect")

    with monkeypatch.context() as patch:
        patch.setattr(guard._candidate, "_compare", fail)
        assert run(session, "new", n=2)
    assert "the candidate policy failed on Admitted" in caplog.text
    assert run(session, "new", n=3)
    assert [one.partial for one in differed] == [True]
    # An expression that fails is said.
    assert run(session, "new")
    assert differed[-1].errors == ("rules/new",)


def test_a_broken_candidate_does_not_load(policies: tuple[Path, Path]) -> None:
    policies[1].write_text(CANDIDATE.replace("call.args.n", "cal.args.n"))
    with pytest.raises(PolicyError, match="cal"):
        load(policies)


def test_differences_are_in_the_journal_behind_their_call(
    policies: tuple[Path, Path], tmp_path: Path
) -> None:
    guard, _ = load(policies, store=tmp_path / "s" / "store.db")
    with guard:
        run(guard.session("s"), "new", n=2)
    (file,) = (tmp_path / "s" / "journal").glob("*.jsonl")
    lines = [decode(line) for line in file.read_bytes().splitlines()]
    assert [type(line).__name__ for line in lines] == [
        "SessionStarted",
        "Admitted",
        "CandidateDiffered",
        "Completed",
    ]
    replay = Replay(compile_policy(policies[0]), observe=False, labels=None)
    replay.add(Reader().read(file))
    figures = replay.finish()
    assert figures.traces.candidates == {"newly refused": 1}
    assert "candidate policies differed when recorded: 1 newly refused" in render_text(figures)


def test_listeners_get_each_event_and_a_difference_behind_its_call(
    policies: tuple[Path, Path],
) -> None:
    guard, _ = load(policies)
    seen: list[tuple[str, str]] = []
    guard.on(lambda event: seen.append((type(event).__name__, getattr(event, "call", ""))))
    session = guard.session("s")
    run(session, "new", n=2)
    run(session, "old")
    session.turn()
    session.end()
    assert seen == [
        ("SessionStarted", ""),
        ("Admitted", "c1"),
        ("CandidateDiffered", "c1"),
        ("Completed", "c1"),
        ("Refused", "c2"),
        ("CandidateDiffered", "c2"),
        ("TurnStarted", ""),
        ("SessionEnded", ""),
    ]


def test_a_resumed_session_is_known_in_part(policies: tuple[Path, Path], tmp_path: Path) -> None:
    store = tmp_path / "s" / "store.db"
    guard, _ = load(policies, store=store)
    with guard:
        run(guard.session("s", agent="a", project="p"), "new", n=1)
    guard, differed = load(policies, store=store)
    with guard:
        run(guard.session("s"), "new", n=2)
    assert [one.partial for one in differed] == [True]


def test_a_session_with_tags_of_another_type_is_known_in_part(
    policies: tuple[Path, Path],
) -> None:
    for path, kind in zip(policies, ("string", "int"), strict=True):
        path.write_text(f"{path.read_text()}tags: {{team: {{type: {kind}}}}}\n")
    guard, differed = load(policies)
    run(guard.session("s", tags={"team": "red"}), "new", n=2)
    assert [one.partial for one in differed] == [True]


def test_it_counts_the_results_too(policies: tuple[Path, Path]) -> None:
    policies[1].write_text(f"{CANDIDATE}  after: {{tools: [a], when: session.cost > 1.0}}\n")
    guard, differed = load(policies)
    session = guard.session("s")
    session.record(session.check("a", {"n": 1}), result="done", cost=2)
    assert differed == []
    session.check("a", {"n": 2})
    assert [one.violations for one in differed] == [("rules/after",)]


def test_sub_agents_and_ends_are_followed(policies: tuple[Path, Path]) -> None:
    guard, differed = load(policies)
    for _ in range(2):
        parent = guard.session("p")
        child = guard.session("c", parent=parent)
        assert [run(child, "a") for _ in range(2)] == [True, True]
        parent.turn()
        parent.spend(tokens=5)
        parent.end()
    assert differed == []


def test_a_call_that_ran_since_no_one_was_asked_and_would_have_waited_is_said(
    policies: tuple[Path, Path],
) -> None:
    policies[1].write_text(f"{CANDIDATE}  lenient: {{tools: [lenient], effect: ask}}\n")
    guard, differed = load(policies)
    assert run(guard.session("s"), "lenient")
    assert [(one.effect, one.enforced, one.refused) for one in differed] == [("ask", "ask", True)]


def test_calls_of_a_resumed_sub_agent_count_for_its_parent(
    policies: tuple[Path, Path], tmp_path: Path
) -> None:
    policies[1].write_text(CANDIDATE.replace("calls: 50", "calls: 2"))
    store = tmp_path / "s" / "store.db"
    with load(policies, store=store)[0] as guard:
        guard.session("child", parent=guard.session("parent"))
    guard, differed = load(policies, store=store)
    with guard:
        for name in ("parent", "child", "parent"):
            assert run(guard.session(name), "a", to=name + str(len(differed)))
            assert differed == [] or name == "parent"
    assert [(one.session, one.violations) for one in differed] == [("parent", ("budgets/calls",))]


calls = st.lists(
    st.tuples(
        st.sampled_from(["old", "new", "careful", "final", "lenient", "a"]),
        st.integers(0, 2),
        st.sampled_from(["done", "same", ""]),
        st.sampled_from(["record", "error", "release", "turn", "nothing"]),
    ),
    max_size=12,
)


@settings(deadline=None, max_examples=40)
@given(calls)
def test_the_enforced_decisions_are_those_without_a_candidate(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[str, int, str, str]]
) -> None:
    folder = tmp_path_factory.getbasetemp()
    enforced, candidate = folder / "enforced.yaml", folder / "candidate.yaml"
    enforced.write_text(ENFORCED)
    candidate.write_text(CANDIDATE)

    def play(guard: Guard) -> list[tuple[Any, ...]]:
        session, seen = guard.session("s"), []
        for tool, number, result, then in steps:
            decision = session.check(tool, {"n": number})
            seen.append((decision.effect, decision.allowed, decision.message))
            if decision and then == "record":
                session.record(decision, result=result)
            elif decision and then == "error":
                session.record(decision, error="failed")
            elif decision and then == "release":
                session.release(decision)
            elif then == "turn":
                session.turn()
        return seen

    clock = lambda: 10**18  # noqa: E731
    alone = Guard.load(enforced, clock=clock)
    beside = Guard.load(enforced, candidate=candidate, clock=clock)
    assert play(beside) == play(alone)
    same: list[CandidateDiffered] = []
    with Guard.load(enforced, candidate=enforced, clock=clock) as guard:
        guard.on(same.append, CandidateDiffered)
        play(guard)
    assert same == [], "a policy does not differ from itself"
