"""State is a fold over events: live calls, replays, restores and audits share these transitions."""

from __future__ import annotations

from policyguard.evaluator import transitions, unreported
from policyguard.evaluator.approvals import GivenApproval, GivenDenial
from policyguard.evaluator.attempt import CallResult
from policyguard.evaluator.budgets.charges import (
    RebuildLedger,
    apply_charge,
    grant_charge,
    raise_limit,
)
from policyguard.evaluator.evaluator import Evaluator
from policyguard.evaluator.evaluator_state import EvaluatorState
from policyguard.evaluator.session_state import SessionState
from policyguard.model.event import (
    Admitted,
    Approved,
    CallEnded,
    ChildCharged,
    Completed,
    Denied,
    Event,
    Granted,
    Marked,
    Refused,
    Released,
    SessionEnded,
    SessionStarted,
    Spent,
    ToolsOffered,
    TurnStarted,
)
from policyguard.model.grant import GrantRequest
from policyguard.model.outcome import Outcome


def fold(evaluator: Evaluator, state: EvaluatorState, event: Event) -> None:
    """Apply one event that carries its derived fields.

    Ignore an event of a session that never started, and the result of a call that is not in flight
    (it was reported before, or was forgotten). Ignore the charges and marks of sub-agents
    too: their own events carry them.
    """
    if isinstance(event, SessionStarted):
        start_session(evaluator, state, event)
        return
    session = state.sessions.get(event.session)
    if session is None:
        return
    match event:
        case Admitted():
            plan = transitions.find_plan(evaluator, session, event)
            transitions.admit(evaluator, state, transitions.restore_attempt(session, event, plan))
        case Completed():
            attempt = session.find_unreported(event.call)
            if attempt is not None:
                attempt.mark_completed(session.clamp_time(event.at), event.wall)
                outcome = outcome_from_event(event)
                result = CallResult(
                    attempt, event, outcome, event.charges, event.observations, event.marks
                )
                transitions.complete(evaluator, state, result)
                transitions.halt_by_result(evaluator, session, event)
        case CallEnded():
            transitions.end_timed_out(evaluator, state, session, event.call, event.at)
        case Refused():
            transitions.refuse(evaluator, state, session, event)
        case Released():
            transitions.release(evaluator, state, session, event.call, event.at)
        case TurnStarted():
            start_turn(evaluator, state, session, event)
        case ToolsOffered():
            session.offer(event.tools)
        case Spent():
            spend(evaluator, state, session, event)
        case Granted():
            grant(evaluator, state, session, event)
        case Marked() if not event.child:
            change_marks(session, event)
        case Approved():
            approve(session, event)
        case Denied():
            deny(session, event)
        case SessionEnded():
            close(evaluator, state, session, event)


def rebuild(evaluator: Evaluator, state: EvaluatorState, event: Event) -> None:
    """Apply an event of a session's own journal, charging only the budgets of that session.

    The usage of shared budgets is known elsewhere; sub-agents' charges are in this journal.
    """
    ledger = state.ledger
    state.ledger = RebuildLedger(
        ledger.usages, ledger.stored_key_counts, budgets=evaluator.budgets, session=event.session
    )
    try:
        if state.marks is not None:
            state.marks.rebuilt = event.session
        if isinstance(event, ChildCharged):
            apply_child_charges(evaluator, state, event)
        elif isinstance(event, Marked) and event.session in state.sessions:
            change_marks(state.sessions[event.session], event)
        else:
            fold(evaluator, state, event)
    finally:
        state.ledger = ledger
        if state.marks is not None:
            state.marks.rebuilt = ""


def start_session(
    evaluator: Evaluator, state: EvaluatorState, event: SessionStarted, *, isolated: bool = False
) -> SessionState:
    """Start a session; one of the same id that is still open goes on. See `SessionState`."""
    session = state.sessions.get(event.session)
    if session is None:
        parent = state.sessions.get(event.parent) if event.parent else None
        session = SessionState(
            event,
            parent,
            evaluator.activation_context,
            max_entries=evaluator.bounds.window_entries,
            isolated=isolated,
            marks=state.marks,
        )
        state.sessions[event.session] = session
        if parent is not None:
            parent.cel_session["children"] += 1
            if event.session in parent.counted_children:
                session.count_aside()
    return session


def outcome_from_event(event: Completed) -> Outcome:
    """Return the outcome of a recorded completion, as far as state depends on it."""
    failed = event.ok is False
    return Outcome(
        ok=not failed,
        state="failure" if failed else event.state or "success",
        report=event,
        signature=event.signature,
        blame=event.blame,
        advancing=event.advancing,
        harness_flagged=event.harness_flagged,
        result_fingerprint=event.result_fingerprint,
        like_result=event.like_result,
        error_fingerprint=event.error_fingerprint,
    )


def start_turn(
    evaluator: Evaluator, state: EvaluatorState, session: SessionState, event: TurnStarted
) -> None:
    """Start a turn: lift a halt, and reset what is counted per turn."""
    transitions.advance_clock(session, event.at)
    session.turn += 1
    session.state_changes.start_turn(event.at)
    session.cel_session["turn"] = session.turn
    session.turn_started_at = event.at
    session.reset_turn()
    session.bans.end_turn()
    session.refused_attempts.clear()
    transitions.reset_refusals(evaluator, session)
    session.halt_entry = ""
    session.refused_batches.clear()
    session.approvals.denied.clear()
    session.refresh_fast_path()
    if session.marks is not None:
        session.marks.end_turn(session)
    for owned in (session.turn_usage_keys, session.batch_usage_keys):
        for budget, key in owned:
            state.ledger.remove(budget, key)
        owned.clear()


def spend(evaluator: Evaluator, state: EvaluatorState, session: SessionState, event: Spent) -> None:
    """Count tokens and cost that the model used between calls."""
    transitions.advance_clock(session, event.at)
    session.add_usage(event.tokens, event.cost)
    for charge in event.charges:
        apply_charge(evaluator, state, session, charge, event.at)
    state.hooks.on_spent(event)


def grant(
    evaluator: Evaluator, state: EvaluatorState, session: SessionState, event: Granted
) -> None:
    """Raise a budget that this session charges, and lift a halt.

    An approval (`key`) raises only the usage that asked, and lifts nothing else.
    """
    transitions.advance_clock(session, event.at)
    if not event.key:
        session.halt_entry = ""
        session.refused_attempts.clear()
        transitions.reset_refusals(evaluator, session)
    elif event.budget in session.refused_attempts:
        session.refused_attempts[event.budget].clear(event.key)
    session.refresh_fast_path()
    charge = grant_charge(evaluator, session, event)
    if charge is not None:
        raise_limit(evaluator, state, session, charge)
    state.hooks.on_granted(session, event)


def apply_child_charges(evaluator: Evaluator, state: EvaluatorState, event: ChildCharged) -> None:
    """Apply what sub-agents charged to a session that is rebuilt without them."""
    session = state.sessions.get(event.session)
    if session is None:
        return
    for charge in event.charges:
        apply_charge(evaluator, state, session, charge, event.at)
    for charge in event.grants:
        if charge.budget in evaluator.budgets:
            raise_limit(evaluator, state, session, charge)


def change_marks(session: SessionState, event: Marked) -> None:
    """Set and clear marks, as the host says."""
    transitions.advance_clock(session, event.at)
    if session.marks is not None:
        at = session.clamp_time(event.at)
        session.marks.change(session, event.cleared, event.marks, at)


def approve(session: SessionState, event: Approved) -> None:
    """Add an approval of one call, known by its fingerprint."""
    transitions.advance_clock(session, event.at)
    session.approvals.add_approval(
        event.fingerprint,
        GivenApproval(event.by, frozenset(event.labels), event.at, _read_request(event)),
    )
    session.refresh_fast_path()


def deny(session: SessionState, event: Denied) -> None:
    """Add a no to one call, known by its fingerprint."""
    transitions.advance_clock(session, event.at)
    session.approvals.deny(
        event.fingerprint, GivenDenial(event.by, event.expires_at, event.message)
    )
    session.refresh_fast_path()


def _read_request(event: Approved) -> GrantRequest | None:
    if not event.remember or event.expires_at is None:
        return None
    return GrantRequest(event.remember, event.scope, event.expires_at)


def close(
    evaluator: Evaluator, state: EvaluatorState, session: SessionState, event: SessionEnded
) -> None:
    """End a session: abandon its calls, and forget what was counted for it alone."""
    unreported.abandon_calls(evaluator, state, session, event.at)
    for budget, key in session.usage_keys | session.turn_usage_keys | session.batch_usage_keys:
        state.ledger.remove(budget, key)
    if session.marks is not None:
        session.marks.end_session(session)
    state.sessions.pop(session.id, None)
    state.hooks.on_ended(session)
