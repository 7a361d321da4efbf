"""State is a fold over events: live calls, replays, restores and audits all come through here."""

from __future__ import annotations

from policyguard.evaluator import calls
from policyguard.evaluator.approvals import Yes
from policyguard.evaluator.evaluator import Evaluator
from policyguard.evaluator.paying import draw, lift, raised
from policyguard.evaluator.session import SessionState
from policyguard.evaluator.state import State
from policyguard.model.event import (
    Admitted,
    Approved,
    Closed,
    Completed,
    Drawn,
    Ended,
    Event,
    Granted,
    Refused,
    Released,
    Spent,
    Started,
    TurnStarted,
)
from policyguard.model.outcome import Outcome


def fold(evaluator: Evaluator, state: State, event: Event) -> None:
    """Bring the state up to date with one event that carries its derived fields.

    An event of a session that never started is ignored, as is the result of a call that is not in
    flight (it was reported before, or its admission has been reclaimed). So is what sub-agents have
    drawn: their own events say it.
    """
    if isinstance(event, Started):
        start(evaluator, state, event)
        return
    session = state.sessions.get(event.session)
    if session is None:
        return
    match event:
        case Admitted():
            plan = evaluator.plan(event.tool, event.server, session.agent, event.class_)
            calls.admit(evaluator, state, calls.rebuild(session, event, plan))
        case Completed():
            attempt = session.flights.get(event.call)
            if attempt is not None:
                outcome, at = recall(event), session.clamp(event.at)
                attempt.look_again(at)
                calls.complete(evaluator, state, attempt, outcome, event.charges, at, event.running)
        case Ended():
            calls.end(evaluator, state, session, event.call, event.at)
        case Refused():
            calls.refuse(evaluator, state, session, event)
        case Released():
            calls.release(evaluator, state, session, event.call, event.at)
        case TurnStarted():
            turn(evaluator, state, session, event)
        case Spent():
            spend(evaluator, state, session, event)
        case Granted():
            grant(evaluator, state, session, event)
        case Approved():
            approve(session, event)
        case Closed():
            close(evaluator, state, session)


def start(
    evaluator: Evaluator, state: State, event: Started, *, apart: bool = False
) -> SessionState:
    """A session begins; one with the same id that was still open goes on. See `SessionState`."""
    session = state.sessions.get(event.session)
    if session is None:
        parent = state.sessions.get(event.parent) if event.parent else None
        most = evaluator.bounds.window_entries
        session = SessionState(event, parent, evaluator.ground, most=most, apart=apart)
        state.sessions[event.session] = session
        if parent is not None:
            parent.facts["children"] += 1
    return session


def recall(event: Completed) -> Outcome:
    """The outcome that a recorded completion had, as far as state depends on it."""
    failed = event.ok is False
    return Outcome(
        ok=not failed,
        state="failure" if failed else event.state or "success",
        signature=event.signature,
        blame=event.blame,
        tokens=event.tokens,
        cost=event.cost,
        score=event.score,
        result=event.result_fingerprint,
        failure=event.error_fingerprint,
        retry_after=event.retry_after,
        advancing=event.advancing,
        infra=event.infra,
    )


def turn(evaluator: Evaluator, state: State, session: SessionState, event: TurnStarted) -> None:
    """A new turn: what was counted per turn begins anew, and a halt is over."""
    calls.tick(session, event.at)
    session.turn += 1
    session.changes.turn(event.at)
    session.facts["turn"] = session.turn
    session.turn_started_at = event.at
    session.forget_turn()
    session.bans.end_turn()
    session.insisted.clear()
    calls.forgive(evaluator, session)
    session.halted = ""
    session.look()
    for budget, key in session.turn_accounts:
        state.book.close(budget, key)
    session.turn_accounts.clear()


def spend(evaluator: Evaluator, state: State, session: SessionState, event: Spent) -> None:
    """The model itself used tokens and money."""
    calls.tick(session, event.at)
    session.use(event.tokens, event.cost)
    for charge in event.charges:
        draw(evaluator, state, session, charge, event.at)


def grant(evaluator: Evaluator, state: State, session: SessionState, event: Granted) -> None:
    """A budget is raised where this session draws on it, and a halt is over.

    A yes to a call raises the one account that asked; what else stands in the way stays.
    """
    calls.tick(session, event.at)
    if not event.key:
        session.halted = ""
        session.insisted.clear()
        calls.forgive(evaluator, session)
    elif event.budget in session.insisted:
        session.insisted[event.budget].forget(event.key)
    session.look()
    charge = raised(evaluator, session, event)
    if charge is not None:
        lift(evaluator, state, session, charge)


def drawn(evaluator: Evaluator, state: State, event: Drawn) -> None:
    """What sub-agents drew from a session's budgets. Only for one that is rebuilt without them."""
    session = state.sessions.get(event.session)
    if session is None:
        return
    for charge in event.charges:
        draw(evaluator, state, session, charge, event.at)
    for charge in event.raised:
        if charge.budget in evaluator.budgets:
            lift(evaluator, state, session, charge)


def approve(session: SessionState, event: Approved) -> None:
    """One call, known by its fingerprint, may be made once although the policy asks."""
    calls.tick(session, event.at)
    session.approvals.give(event.fingerprint, Yes(event.by, frozenset(event.labels), event.at))
    session.look()


def close(evaluator: Evaluator, state: State, session: SessionState) -> None:
    """The session is over; what was counted for it alone is forgotten, its calls are given up."""
    calls.give_up(evaluator, state, session)
    for budget, key in session.accounts | session.turn_accounts:
        state.book.close(budget, key)
    state.sessions.pop(session.id, None)
