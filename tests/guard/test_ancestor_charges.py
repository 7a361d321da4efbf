"""What sub-agents draw from the budgets of those above them stands in whose journal it concerns."""

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
from policyguard.guard.session_opening import start_session
from policyguard.model.decision import Decision
from policyguard.model.event import Admitted, ChildCharged, Event, Started
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
LINE = ("root", "middle", "leaf")


def load(folder: Path, clock: Any, policy: str = POLICY, **given: Any) -> Guard:
    file = folder / "policy.yaml"
    file.write_text(policy)
    return Guard.load(file, store=folder / "state" / "store.db", clock=clock, **given)


def opened(guard: Guard, order: tuple[str, ...] = LINE) -> dict[str, Session]:
    for name in order:
        above = LINE.index(name) - 1
        parent = LINE[above] if above >= 0 else None
        guard.session(name, parent=parent, agent="boss" if name == "root" else "")
    return {name: guard.session(name) for name in LINE}


def accounts(guard: Guard, *, keyed: bool = True) -> dict[tuple[str, str], tuple[Any, ...]]:
    """All that is drawn, held and granted; with `keyed` under keys, too, which a secret hides."""
    found = {
        (budget, key): (
            one.used,
            one.granted,
            one.running,
            sorted(one.charges or ()),
            one.started_at,
        )
        for budget, kept in guard._state.engine_state.ledger.usages.items()
        for key, one in kept.items()
        if keyed or "\x1f" not in key
    }
    return {place: value for place, value in found.items() if any(value)}


step = st.tuples(
    st.sampled_from(LINE),
    st.one_of(
        st.sampled_from(("check", "check", "release", "turn")),
        st.tuples(st.just("record"), st.sampled_from((0.0, 0.125, 0.5))),
        st.tuples(st.just("spend"), st.sampled_from((0.25, 1.0))),
        st.tuples(st.just("grant"), st.sampled_from(("calls", "turn", "spend", "boss"))),
    ),
)


@settings(max_examples=examples(40), deadline=None)
@given(st.lists(step, max_size=25), st.permutations(LINE))
def test_a_line_of_sessions_goes_on_as_it_was_left(
    steps: list[tuple[str, Any]], order: list[str]
) -> None:
    seconds = itertools.count(1_755_500_000)
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        guard = load(folder, lambda: next(seconds) * 10**9)
        sessions = opened(guard)
        running: dict[str, list[Decision]] = {name: [] for name in LINE}
        for name, what in steps:
            session, calls = sessions[name], running[name]
            match what:
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
        left = accounts(guard)
        guard.close()
        again = load(folder, lambda: next(seconds) * 10**9)
        opened(again, tuple(order))
        assert accounts(again) == left
        again.close()


def test_what_a_call_of_before_costs_is_paid_by_who_paid_for_it(tmp_path: Path) -> None:
    clock = itertools.count(1_755_500_000_000_000_000, 10**6).__next__
    with load(tmp_path, clock) as first:
        decision = opened(first)["leaf"].check("tool")
    with load(tmp_path, clock) as second:
        opened(second)["leaf"].record(decision.id, result="r", cost=2.5)
        left = accounts(second)
    third = load(tmp_path, clock)
    third.session("root")
    assert [accounts(third)["budgets/spend", "root"][0], left["budgets/spend", "root"][0]] == [
        2_500_000_000
    ] * 2


def test_only_what_concerns_others_is_told_to_them(tmp_path: Path) -> None:
    policy = (
        "policyguard: 1\nname: own\nbudgets:\n"
        "  own: {calls: 9, per: session, agents: [worker]}\n"
        "  all: {calls: 9, per: global}\n  places: {concurrent: 9, per: session}\n"
    )
    heard: list[Event] = []
    clock = itertools.count(1_755_500_000_000_000_000, 10**6).__next__
    with load(tmp_path, clock, policy, listener=heard.append) as guard:
        child = guard.session("child", parent=guard.session("parent"), agent="worker")
        child.record(child.check("tool"), result="r")
    assert not any(isinstance(event, ChildCharged) for event in heard)


def test_a_replay_counts_what_sub_agents_drew_once(tmp_path: Path) -> None:
    clock = itertools.count(1_755_500_000_000_000_000, 10**6).__next__
    heard: list[Event] = []
    with load(tmp_path, clock, listener=heard.append) as guard:
        sessions = opened(guard)
        for number in range(3):
            sessions["leaf"].check("tool", {"n": number})
        left = accounts(guard, keyed=False)
    assert [event.session for event in heard if isinstance(event, ChildCharged)] == [
        "middle",
        "root",
    ] * 3
    replayed = Guard.load(tmp_path / "policy.yaml", clock=clock)
    for event in heard:
        if isinstance(event, Started):
            start_session(replayed, event)
        else:
            ReplaySession(replayed.session(event.session)).apply(event)
    assert sum(isinstance(event, Admitted) for event in heard) == 3
    assert accounts(replayed, keyed=False) == left
