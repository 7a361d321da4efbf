"""Charges of sub-agents to the budgets of their ancestors, and in whose journal they are."""

from __future__ import annotations

import itertools
import tempfile
from pathlib import Path
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from policyguard import Guard
from policyguard.guard.replay import ReplaySession
from policyguard.guard.session import Session
from policyguard.guard.sessions.opening import start_session
from policyguard.model.decision import Decision
from policyguard.model.event import Admitted, ChildCharged, Event, SessionStarted
from tests.examples import examples

POLICY = """
policyguard: 1
name: inherited
budgets:
  calls: {calls: 6, per: session, extend: 2}
  turn: {calls: 4, per: turn, extend: 1}
  spend: {cost: 3.00, per: session, reserve: 0.25, extend: 1.00}
  window: {calls: 5, per: session, within: 20s}
  clock: {time: 1h, per: [session, call.tool]}
  places: {concurrent: 3, per: session}
  boss: {calls: 9, per: session, agents: [boss], extend: 2}
"""
CHAIN = ("root", "middle", "leaf")


def load(folder: Path, clock: Any, policy: str = POLICY, **options: Any) -> Guard:
    file = folder / "policy.yaml"
    file.write_text(policy)
    return Guard.load(file, store=folder / "state" / "store.db", clock=clock, **options)


def open_chain(guard: Guard, order: tuple[str, ...] = CHAIN) -> dict[str, Session]:
    for name in order:
        parent_index = CHAIN.index(name) - 1
        parent = CHAIN[parent_index] if parent_index >= 0 else None
        guard.session(name, parent=parent, agent="boss" if name == "root" else "")
    return {name: guard.session(name) for name in CHAIN}


def read_usage(
    guard: Guard, *, include_keyed: bool = True
) -> dict[tuple[str, str], tuple[Any, ...]]:
    """Return the usage of each budget and key; computed keys are hashed and can be left out."""
    usage_by_key = {
        (budget, key): (
            usage.used,
            usage.granted,
            usage.running,
            sorted(usage.charges or ()),
            usage.started_at,
        )
        for budget, usages in guard._state.evaluator_state.ledger.usages.items()
        for key, usage in usages.items()
        if include_keyed or "\x1f" not in key
    }
    return {key_pair: value for key_pair, value in usage_by_key.items() if any(value)}


step = st.tuples(
    st.sampled_from(CHAIN),
    st.one_of(
        st.sampled_from(("check", "check", "release", "turn")),
        st.tuples(st.just("record"), st.sampled_from((0.0, 0.125, 0.5))),
        st.tuples(st.just("spend"), st.sampled_from((0.25, 1.0))),
        st.tuples(st.just("grant"), st.sampled_from(("calls", "turn", "spend", "boss"))),
    ),
)


@settings(max_examples=examples(40), deadline=None)
@given(st.lists(step, max_size=25), st.permutations(CHAIN))
def test_reopened_sessions_have_the_same_usage(
    steps: list[tuple[str, Any]], order: list[str]
) -> None:
    seconds = itertools.count(1_755_500_000)
    with tempfile.TemporaryDirectory() as temp_folder:
        folder = Path(temp_folder)
        guard = load(folder, lambda: next(seconds) * 10**9)
        sessions = open_chain(guard)
        running: dict[str, list[Decision]] = {name: [] for name in CHAIN}
        for name, action in steps:
            session, calls = sessions[name], running[name]
            match action:
                case "check":
                    decision = session.check("tool", {"n": next(seconds)})
                    if decision.allowed:
                        calls.append(decision)
                case "release" if calls:
                    session.release(calls.pop())
                case "turn":
                    session.turn()
                case ("record", cost) if calls:
                    session.record(calls.pop(0), result="r", cost=cost)
                case ("spend", cost):
                    session.spend(cost=cost)
                case ("grant", budget):
                    session.grant(budget, by="ana")
                case _:
                    pass
        before = read_usage(guard)
        guard.close()
        reopened = load(folder, lambda: next(seconds) * 10**9)
        open_chain(reopened, tuple(order))
        assert read_usage(reopened) == before
        reopened.close()


def test_a_limit_that_a_sub_agent_raised_is_raised_once_and_until_the_end(tmp_path: Path) -> None:
    """Whoever is opened again, and whatever slots have been taken meanwhile."""
    policy = "policyguard: 1\nname: p\nbudgets: {places: {concurrent: 2, agents: [boss]}}\n"

    def open_leaf(guard: Guard) -> Session:
        root = guard.session("root", agent="boss")
        return guard.session("leaf", agent="worker", parent=root)

    def count_places(session: Session) -> int:
        running = list(itertools.takewhile(bool, (session.check("x", {"n": n}) for n in range(9))))
        for decision in running:
            session.release(decision)
        return len(running)

    with load(tmp_path, lambda: 10**18, policy) as guard:
        open_leaf(guard).grant("places", 1, by="ann")
        assert count_places(guard.session("root")) == 3
    with load(tmp_path, lambda: 10**18, policy) as guard:
        assert count_places(guard.session("root", agent="boss")) == 3
        for _ in range(2):
            leaf = open_leaf(guard)
            assert count_places(leaf) == 3
            leaf.close()
        guard.session("root").end()
        assert count_places(open_leaf(guard)) == 2


def test_late_cost_is_charged_to_the_ancestors_that_admitted_the_call(tmp_path: Path) -> None:
    clock = itertools.count(1_755_500_000_000_000_000, 10**6).__next__
    with load(tmp_path, clock) as first:
        decision = open_chain(first)["leaf"].check("tool")
    with load(tmp_path, clock) as second:
        open_chain(second)["leaf"].record(decision.id, result="r", cost=2.5)
        before = read_usage(second)
    third = load(tmp_path, clock)
    third.session("root")
    assert [read_usage(third)["budgets/spend", "root"][0], before["budgets/spend", "root"][0]] == [
        2_500_000_000
    ] * 2


def test_ancestors_are_not_told_of_what_takes_nothing_from_them(tmp_path: Path) -> None:
    policy = (
        "policyguard: 1\nname: own\nbudgets:\n"
        "  own: {calls: 9, per: session, agents: [worker]}\n"
        "  all: {calls: 9, per: global}\n  places: {concurrent: 9, per: session}\n"
        "  unused: {cost: 9, per: [session, call.tool]}\n  clock: {time: 1h, per: session}\n"
    )
    events: list[Event] = []
    clock = itertools.count(1_755_500_000_000_000_000, 10**6).__next__
    with load(tmp_path, clock, policy, listener=events.append) as guard:
        child = guard.session("child", parent=guard.session("parent"), agent="worker")
        child.record(child.check("tool"), result="r")
    assert not any(isinstance(event, ChildCharged) for event in events)


def test_replay_counts_charges_of_sub_agents_once(tmp_path: Path) -> None:
    clock = itertools.count(1_755_500_000_000_000_000, 10**6).__next__
    events: list[Event] = []
    with load(tmp_path, clock, listener=events.append) as guard:
        sessions = open_chain(guard)
        for number in range(3):
            sessions["leaf"].check("tool", {"n": number})
        before = read_usage(guard, include_keyed=False)
    assert [event.session for event in events if isinstance(event, ChildCharged)] == [
        "middle",
        "root",
    ] * 3
    replayed = Guard.load(tmp_path / "policy.yaml", clock=clock)
    for event in events:
        if isinstance(event, SessionStarted):
            start_session(replayed, event)
        else:
            ReplaySession(replayed.session(event.session)).apply(event)
    assert sum(isinstance(event, Admitted) for event in events) == 3
    assert read_usage(replayed, include_keyed=False) == before


def test_a_refused_call_is_told_the_least_that_is_left(tmp_path: Path) -> None:
    """Of its own usage and its ancestors'."""
    policy = """
policyguard: 1
name: left
budgets: {calls: {calls: 3, per: session}, cost: {cost: 10, per: session}}
rules: {no: {tools: [no]}}
"""
    with load(tmp_path, lambda: 10**18, policy) as guard:
        root = guard.session("root")
        leaf = guard.session("leaf", parent="root")
        for session in (root, root, leaf):
            session.record(session.check("x", {}), result="fine", cost=2)
        assert root.check("no").left == {"budgets/calls": 0, "budgets/cost": 4}
        assert leaf.check("no").left == {"budgets/calls": 0, "budgets/cost": 4}
        assert guard.session("other").check("no").left == {"budgets/calls": 3, "budgets/cost": 10}
