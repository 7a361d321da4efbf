"""State transitions of calls: admitted, completed, released, refused, abandoned."""

from __future__ import annotations

from typing import Any

from policyguard.evaluator import unreported
from policyguard.evaluator.approvals import ApprovalRequest
from policyguard.evaluator.attempt import UNRECORDED_ARGS, Attempt, CallResult, WindowEntry
from policyguard.evaluator.batches import BATCH_REFUSED
from policyguard.evaluator.budgets.charges import (
    apply_charge,
    free_slots,
    free_timed_out_slots,
    refund,
)
from policyguard.evaluator.evaluation import INTERNAL_ERROR
from policyguard.evaluator.evaluator import Evaluator
from policyguard.evaluator.evaluator_state import EvaluatorState
from policyguard.evaluator.halts import HALTED
from policyguard.evaluator.limits.bans import LimitBan
from policyguard.evaluator.limits.base import LimitChecker
from policyguard.evaluator.offered_tools import UNKNOWN_TOOL
from policyguard.evaluator.plan import Plan
from policyguard.evaluator.session_state import SessionState
from policyguard.model.effect import Effect
from policyguard.model.event import Admitted, Completed, Refused
from policyguard.model.outcome import Outcome
from policyguard.model.tool_name import full_name_alias


def attempt_from_event(session: SessionState, event: Admitted | Refused, at: int | None) -> Attempt:
    """Return a recorded attempt as its caller made it, without what a policy derived."""
    tool, server, host_tool = event.tool_name
    return Attempt(
        tool,
        event.args or {},
        at,
        session,
        event.wall,
        event.call,
        server,
        event.batch,
        event.host_call,
        event.tags,
        event.hints,
        event.estimate,
        host_tool,
        pins=event.pins,
    )


def find_plan(evaluator: Evaluator, session: SessionState, event: Admitted | Refused) -> Plan:
    """Return the plan of a recorded attempt."""
    tool, server, host_tool = event.tool_name
    alias = full_name_alias(tool, server, host_tool)
    return evaluator.plan(tool, server, session.agent, event.all_classes, alias)


def restore_attempt(session: SessionState, event: Admitted | Refused, plan: Plan) -> Attempt:
    """Return a recorded attempt with what the policy had derived."""
    attempt = attempt_from_event(session, event, session.clamp_time(event.at))
    if event.args is None:
        attempt.args = UNRECORDED_ARGS
    attempt.bound_plan = session.bind_plan(plan)
    attempt.fingerprint = event.fingerprint
    attempt.likeness = event.likeness or event.fingerprint
    attempt.exact_fingerprint = event.exact_fingerprint
    attempt.loose_fingerprint = event.loose_fingerprint
    attempt.numbers = event.numbers
    attempt.targets = event.targets
    attempt.keys = event.keys
    if isinstance(event, Admitted):
        attempt.recurs = any(attempt.likeness in calls for calls in attempt.bound_plan.watched)
        attempt.state_changing = event.state_changing
        attempt.probes = event.probes
        attempt.radius = event.radius
        attempt.charges = event.charges
        attempt.cleared = event.cleared
        attempt.shared_clearings = event.clearings
        attempt.cleared_keys = tuple([(change, event.at) for change in event.taken])
    return attempt


def admit(evaluator: Evaluator, state: EvaluatorState, attempt: Attempt) -> None:
    """Count an admitted call in windows and budgets."""
    session, bound_plan, at = attempt.session, attempt.bound_plan, attempt.at
    if at is not None:
        if session.turn_started_at is None:
            advance_clock(session, at)
        else:
            session.now = at  # as `advance_clock` would: it is not before the latest
    in_flight = session.in_flight
    if in_flight or session.timed_out:
        unreported.reclaim_calls(evaluator, state, session, at)
    likeness = attempt.likeness
    attempt.window_entry = WindowEntry(likeness, session.state_changes.seq)
    if session.on_fast_path:
        if bound_plan.repetition is not None:
            limit, tracker = bound_plan.repetition
            limit.admit(tracker, attempt)
        if bound_plan.cycle is not None:
            limit, tracker = bound_plan.cycle
            limit.admit(tracker, attempt)
    else:
        for limit, tracker in bound_plan.limits:
            limit.admit(tracker, attempt)
        if session.bans.active:
            session.bans.admit(attempt)
    if attempt.charges:
        for charge in attempt.charges:
            apply_charge(evaluator, state, session, charge, at)
    in_flight[attempt.id] = attempt
    session.cel_session["calls"] += 1
    if attempt.loose_fingerprint:
        session.tolerant_calls.remember(
            attempt.fingerprint,
            attempt.loose_fingerprint,
            attempt.numbers,
            evaluator.bounds.window_entries,
        )
    if evaluator.remembers_calls:
        _remember_call(evaluator, session, attempt)
    if not session.on_fast_path:
        if session.approvals.requests:
            attempt.used_approval = session.approvals.use(attempt.approval_fingerprint)
        if session.refused_batches:
            session.refused_batches.admit(attempt)
        session.clear_refusals(attempt)
        session.update_refusals(session.bind_plan(bound_plan.plan))
    state.hooks.on_admitted(attempt)


def complete(evaluator: Evaluator, state: EvaluatorState, result: CallResult) -> list[str]:
    """Apply the result of a call. Return the ids of the constraints that it taught or confirmed."""
    attempt, event, outcome = result.attempt, result.report, result.outcome
    session, at = attempt.session, attempt.completed_at
    if at is not None and (session.now is None or at > session.now):
        session.now = at  # as `advance_clock` does
    if attempt.is_given_up:
        session.remove_given_up(attempt)
    else:
        del session.in_flight[attempt.id]
    state_changes, bound_plan = session.state_changes, attempt.bound_plan
    entry = attempt.window_entry
    entry.seq = state_changes.seq = state_changes.seq + 1
    state_name = outcome.state
    succeeded, is_cancelled = state_name == "success", state_name == "cancelled"
    if not is_cancelled:
        entry.result_fingerprint = outcome.result_fingerprint
        if outcome.like_result:
            entry.like_result = outcome.like_result
        if not outcome.advancing:  # its text may echo the call
            entry.mark_flagged()
        if not outcome.ok:
            entry.mark_failed()
        if succeeded or (not outcome.ok and outcome.blame != "harness"):
            for results in bound_plan.recent_results:
                results.note(attempt, entry, succeeded)
                if results.tool_rows and session.on_fast_path:
                    session.update_active_limits(bound_plan.plan)
    if succeeded:
        session.successes += 1
        plan = bound_plan.plan
        if (
            attempt.hints or plan.cached_answer is not False or attempt.state_changing is not None
        ) and plan.is_state_changing(attempt):
            state_changes.record(attempt.likeness, at)
            for ancestor in session.ancestors() if session.trackers_aside is None else ():
                ancestor.state_changes.record(f"{session.id}\x1f{attempt.likeness}", at)
    elif not outcome.ok:
        session.cel_session["failures"] += 1
    if is_cancelled:  # its window entry stays that of a call without a result
        for limit, tracker in bound_plan.limits:
            limit.cancel(tracker, attempt)
        session.bans.cancel(attempt)
        session.update_active_limits(bound_plan.plan)
    elif bound_plan.needs_successes or not (
        succeeded and session.on_fast_path and outcome.advancing
    ):
        _notify_limits(session, attempt, outcome)
    else:
        if session.open_streaks:
            for limit, tracker in bound_plan.may_be_active:
                limit.complete(tracker, attempt, outcome)
            session.update_active_limits(bound_plan.plan)
        for limit, tracker in bound_plan.rows_by_call:
            if tracker and (entry.likeness in tracker or attempt.state_changing):
                limit.complete(tracker, attempt, outcome)
    if event.still_running and not attempt.is_given_up:
        session.timed_out[attempt.id] = attempt  # it keeps its slots until it ends
    elif attempt.charges:
        free_slots(evaluator, state, attempt)
    if result.charges:
        for charge in result.charges:
            # What was reserved too much was charged at admission.
            charged_at = at if charge.amount > 0 else attempt.at
            apply_charge(evaluator, state, session, charge, charged_at)
    if event.tokens or event.cost:
        session.add_usage(event.tokens or 0, event.cost or 0.0)
    if session.marks is not None and (attempt.cleared or result.marks):
        session.marks.complete(attempt, result.marks)
    if evaluator.reads_changed and not is_cancelled:
        fingerprint, max_entries = outcome.result_fingerprint, evaluator.bounds.window_entries
        _set_latest(session.last_results, attempt.fingerprint, fingerprint, max_entries)
    return state.hooks.on_completed(result)


def halt_by_result(evaluator: Evaluator, session: SessionState, event: Completed) -> None:
    """Halt the session if a rule on this result does."""
    if event.halted_by:
        session.halt_entry = session.halt_entry or event.halted_by
        reset_refusals(evaluator, session)
        session.refresh_fast_path()


def _notify_limits(session: SessionState, attempt: Attempt, outcome: Outcome) -> None:
    """Pass a result to the limits that is more to them than one more success."""
    entry, bound_plan = attempt.window_entry, attempt.bound_plan
    if not outcome.ok:
        entry.error_fingerprint = outcome.error_fingerprint
        entry.is_exempt = outcome.blame == "harness"
    # These trackers may be of an earlier turn; the call then counts nothing in this one.
    for limit, tracker in bound_plan.completing:
        limit.complete(tracker, attempt, outcome)
    if outcome.state == "success" and attempt.limit_notes:
        session.clear_refusals(attempt, has_succeeded=True)
    if session.bans.active:
        if outcome.state == "success" and outcome.advancing:
            _lift_bans(session, attempt, outcome)
        session.bans.complete(attempt, outcome)
    for limit, tracker in bound_plan.setting_bans:
        if tracker or limit.always_evaluated:
            _add_ban(limit, tracker, attempt, outcome.result_fingerprint)
    session.update_active_limits(bound_plan.plan)


def end_timed_out(
    evaluator: Evaluator, state: EvaluatorState, session: SessionState, call: str, at: int | None
) -> None:
    """Free the slots of a call that had timed out and has now ended."""
    advance_clock(session, at)
    attempt = session.timed_out.pop(call, None)
    if attempt is not None:
        if session.marks is not None:
            session.marks.complete(attempt, ())
        free_timed_out_slots(evaluator, state, attempt)


def release(
    evaluator: Evaluator, state: EvaluatorState, session: SessionState, call: str, at: int | None
) -> None:
    """Take back the admission of a call that did not run."""
    advance_clock(session, at)
    attempt = session.in_flight.pop(call, None)
    if attempt is None:
        return
    for limit, tracker in attempt.bound_plan.limits:
        limit.release(tracker, attempt)
    session.bans.release(attempt)
    session.update_active_limits(attempt.bound_plan.plan)
    refund(evaluator, state, attempt)
    if session.marks is not None and attempt.cleared_keys:
        session.marks.release(attempt)
    session.cel_session["calls"] -= 1
    if evaluator.reads_counts:
        for counts, name in _counted_names(attempt):
            table = session.cel_session.get(counts, {})
            if table.get(name):
                table[name] -= 1
    state.hooks.on_released(attempt)


def refuse(
    evaluator: Evaluator, state: EvaluatorState, session: SessionState, event: Refused
) -> None:
    """Count a refused attempt; one that halts stops the session.

    It counts in no window, only towards escalation thresholds and `refusals`; not even there if
    policyguard itself failed, which is no doing of the agent's.
    """
    advance_clock(session, event.at)
    unreported.expire_calls(evaluator, state, session, event.at)
    if event.violations == (INTERNAL_ERROR,):
        state.hooks.on_refused(session, event)
        return
    plan = find_plan(evaluator, session, event)
    bound_plan = session.bind_plan(plan)
    if event.effect == Effect.HALT:
        entry = event.violations[0] if event.violations else "policy"
        if entry != HALTED:  # an ancestor's halt ends with the ancestor's
            session.halt_entry = session.halt_entry or entry
        reset_refusals(evaluator, session)
    if session.offered is not None and UNKNOWN_TOOL in event.violations:
        session.offered.was_listed = True
    attempt = restore_attempt(session, event, plan)
    awaiting = bound_plan.limits_awaiting_probe(attempt.at)
    if (
        bound_plan.refusal_streak is not None
        and event.effect != Effect.HALT
        and not awaiting.issuperset(event.violations)
    ):
        bound_plan.refusal_streak.add(event.batch)
    for limit, tracker in bound_plan.limits:
        if limit.id in event.violations:
            limit.refuse(tracker, attempt)
    session.bans.refuse(attempt, event.violations)
    if evaluator.refuses_batches and event.batch:
        cause = next((one for one in event.violations if one != BATCH_REFUSED), None)
        if cause is not None:
            session.refused_batches.add(event.batch, attempt.approval_fingerprint, cause)
    for limit in plan.escalating_limits:
        if limit.id not in awaiting:
            session.add_refusal(limit.id, limit.subject(attempt))
    for charge in event.attempt_charges:
        session.add_refusal(charge.budget, charge.key)
    if event.effect == Effect.ASK:
        known = evaluator.approval_requirements
        requirements = [known[id_] for id_ in event.violations if id_ in known]
        session.approvals.add_request(
            event.exact_fingerprint or event.fingerprint,
            ApprovalRequest(event.at, event.approval_charges, event),
            min((requirement.within for requirement in requirements), default=None),
        )
    for limit, tracker in bound_plan.setting_bans:
        if limit.id in event.violations:
            _add_ban(limit, tracker, attempt, "")
    session.update_active_limits(plan)
    state.hooks.on_refused(session, event)


def advance_clock(session: SessionState, at: int | None) -> None:
    """Advance the session's time, never back."""
    if at is None:
        return
    if session.turn_started_at is None:  # a session that knows this knows its own start
        session.turn_started_at = at
        if session.started_at is None:
            session.started_at = at
    if session.now is None or at > session.now:
        session.now = at


def reset_refusals(evaluator: Evaluator, session: SessionState) -> None:
    """Reset the streaks of `refusals`: after a halt, a grant or a new turn."""
    for id_ in evaluator.refusal_limits:
        tracker = session.trackers.get(id_) or session.turn_trackers.get(id_)
        if tracker is not None:
            tracker.reset()
            session.active_limits.pop(id_, None)


def _lift_bans(session: SessionState, attempt: Attempt, outcome: Outcome) -> None:
    """Lift the bans that a result which advances ends."""
    for ban in session.bans.lift(attempt, outcome):
        ban.limit.allow_retry(session.get_tracker(ban.limit), ban.subject)


def _add_ban(limit: LimitChecker, tracker: Any, attempt: Attempt, result: str) -> None:
    """Ban what has reached its limit."""
    session = attempt.session
    violation = limit.evaluate(tracker, attempt, session.state_changes, 0)
    if violation is not None and violation.used is not None and violation.used >= limit.max:
        ban = LimitBan(limit, attempt, violation.text, result)
        if ban.ends_with_turn and session.get_tracker(limit) is not tracker:
            return  # it was for the turn of the call, which is over
        session.bans.add(ban)


def _remember_call(evaluator: Evaluator, session: SessionState, attempt: Attempt) -> None:
    """Keep what expressions read: marks, counts by tool and class, each tool's last arguments."""
    if session.marks is not None and attempt.bound_plan.plan.marks is not None:
        session.marks.admit(attempt)
    max_entries = evaluator.bounds.plans
    if evaluator.reads_counts:
        for counts, name in _counted_names(attempt):
            table = session.cel_session.setdefault(counts, {})
            _set_latest(table, name, table.get(name, 0) + 1, max_entries)
    if evaluator.activation_context.reads_previous:
        _set_latest(session.previous_args, attempt.full_name, attempt.args, max_entries)


def _counted_names(attempt: Attempt) -> list[tuple[str, str]]:
    """Return the tables of `session` that count a call, each with the name it counts under."""
    classes = attempt.bound_plan.plan.classes or ("",)
    return [("#tools", attempt.tool), *(("#classes", name) for name in classes)]


def _set_latest(table: dict[str, Any], name: str, value: Any, max_entries: int) -> None:
    """Set an entry as the latest; where there are too many, drop the oldest."""
    table.pop(name, None)
    table[name] = value
    if len(table) > max_entries:
        del table[next(iter(table))]
