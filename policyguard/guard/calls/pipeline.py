"""A call's way through one session: checked, admitted or refused, completed.

Each step changes the state by the evaluator's transitions and emits its event, under the guard's
lock. If no one reads them, no events of admitted calls and results are built. One module, since all
steps share the lock and what a failed write undoes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import partial
from time import monotonic
from typing import TYPE_CHECKING

from msgspec.structs import replace

from policyguard.evaluator.attempt import Attempt
from policyguard.evaluator.budgets.charges import grant_charge, negate_charges, spend_charges
from policyguard.evaluator.evaluation import ALLOWED, GuardMode
from policyguard.evaluator.evaluator import CallIdentity, Evaluator
from policyguard.evaluator.session_state import SessionState
from policyguard.evaluator.transitions import admit as admit_call
from policyguard.evaluator.transitions import complete as complete_call
from policyguard.evaluator.transitions import halt_by_result
from policyguard.guard.calls import decisions
from policyguard.guard.calls.ancestor_charges import AncestorCharges, reverse
from policyguard.guard.calls.known_calls import KnownCalls
from policyguard.guard.calls.pending_advice import PendingAdvice
from policyguard.guard.calls.result_editing import build_recorded, evaluate_parts
from policyguard.guard.host_log import warn
from policyguard.guard.tools.results import ToolResult
from policyguard.journal.errors import JournalError
from policyguard.model.decision import Decision, EvalError
from policyguard.model.effect import Effect
from policyguard.model.errors import ArgumentsError, ClosedError
from policyguard.model.event import (
    Approved,
    ChildCharged,
    Completed,
    Event,
    Granted,
    Released,
    Spent,
)
from policyguard.model.outcome import Recorded
from policyguard.store.errors import StoreError

if TYPE_CHECKING:
    from policyguard.guard.guard import Guard

_ALLOW = Effect.ALLOW  # a member of an enum is slow to look up


class CallPipeline(KnownCalls):
    """What happens to the calls of one session. `steady_clock` is the session's time."""

    def __init__(self, guard: Guard, state: SessionState, first_number: int) -> None:
        super().__init__(guard, state, first_number)
        self.steady_clock = guard._steady_clock
        self.advice = PendingAdvice(guard._evaluator.bounds.in_flight)
        self._ancestors = AncestorCharges(guard, state)
        self._is_unreported_noted = False

    def check(
        self,
        attempt: Attempt,
        admit: bool,
        invalid_reason: str = "",
        mode: GuardMode | None = None,
        requires_new: bool = False,
    ) -> Decision:
        """Decide on an attempt; with `admit`, count it if allowed, and record it if refused.

        `invalid_reason` says why its arguments cannot be checked, if that is known. `mode` is by
        default the guard's. With `requires_new`, `ValueError` if the host's id of the call is that
        of a call in flight.
        """
        guard, state = self._guard, self._state
        evaluator = guard._evaluator
        if mode is None:
            mode = guard._mode
        guard_state, bound_plan = guard._state, None
        identity: CallIdentity | None
        try:  # before the lock: other threads must not wait for large arguments
            identity = evaluator.identify(attempt.tool, attempt.server, attempt.args)
        except Exception:  # noqa: BLE001 - a defect shows again below, where the policy says what it means
            identity = None
            with suppress(Exception):
                identity, invalid_reason = _identify_odd(evaluator, attempt)
        written: list[ChildCharged] | None = None
        is_spending = False
        with guard._lock:
            if requires_new and self.resolve_host_call(attempt.host_call, in_flight_only=True):
                raise ValueError(f"call `{attempt.host_call}` is in flight: report it first")
            if admit:
                if guard._latest_session != state.id:
                    guard._mark_used(state.id)
                self.last_number += 1
                if not attempt.id:
                    attempt.id = f"c{self.last_number}"
            try:
                if self.closed:
                    raise ClosedError(self.closed_reason)
                if invalid_reason:
                    evaluation = decisions.invalid_arguments(
                        attempt, invalid_reason, observe=mode.observe
                    )
                else:
                    bound_plan = evaluator.prepare(attempt, identity)  # a plan lets it be admitted
                    approvals = state.approvals.received
                    if approvals and admit and attempt.approval_fingerprint in approvals:
                        is_spending = not mode.observe  # first: what fails must not let it run
                    constraint_sync = guard._constraint_sync
                    if constraint_sync is not None and monotonic() >= constraint_sync.next_poll:
                        guard._poll_store()
                        if self.closed:  # another host has gone on with the session
                            raise ClosedError(self.closed_reason)
                    if guard._stored_marks is not None:
                        guard._stored_marks.poll_for(bound_plan.plan.marks)
                    if is_spending and guard._journal is not None:
                        guard._journal.require_store(state.id)  # else the approval is kept
                    learned = (
                        guard_state.check_learned(attempt)
                        if guard_state.constraint_set.constraints or guard_state.has_radius
                        else ()
                    )
                    budgets = guard._shared_budgets
                    errors = attempt.errors if budgets is not None else ()
                    evaluation = evaluator.evaluate(
                        guard_state.evaluator_state, attempt, bound_plan, learned, mode
                    )
                    if (
                        budgets is not None
                        and not (
                            admit and evaluation is ALLOWED and budgets.charge_at_once(attempt)
                        )
                        and budgets.covers(bound_plan.plan)
                    ):
                        evaluate = budgets.make_repeatable(
                            attempt,
                            errors,
                            evaluator,
                            guard_state.evaluator_state,
                            bound_plan,
                            learned,
                            mode,
                        )
                        evaluation = budgets.evaluate(attempt, evaluation, evaluate, admit=admit)
            except ClosedError:
                evaluation, bound_plan = self._closed_evaluation, None
                attempt.id, admit = "", False  # a later call may get this number
            except ArgumentsError as error:
                evaluation = decisions.invalid_arguments(attempt, str(error), observe=mode.observe)
            except Exception as error:  # noqa: BLE001 - the policy says what a defect of ours means
                allow = self._allow_on_error and not is_spending
                evaluation = decisions.internal_error(attempt, error, allow=allow)
            if evaluation is ALLOWED and attempt.timeout is None and identity is not None:
                # The common case, made short.
                tool = attempt.host_tool or attempt.tool
                decision = Decision(attempt.id, state.id, tool, _ALLOW, True, identity[0])
            else:
                decision = decisions.build_decision(
                    state.id, evaluation, attempt, observe=mode.observe
                )
                if admit and self.advice.answers:
                    self.advice.answers.pop(attempt.approval_fingerprint, None)
                if admit and not (state.state_changes.seq or self._is_unreported_noted):
                    decision, self._is_unreported_noted = decisions.note_unreported(decision)
            if not admit:
                return decision
            try:
                if not decision.allowed:
                    refused = decisions.build_refused(attempt, decision)
                    guard_state.fold(refused)
                    guard._events.emit(refused)
                elif bound_plan is not None:
                    admit_call(evaluator, guard_state.evaluator_state, attempt)
                    if guard._has_audience:
                        guard._events.emit_admitted(attempt, decision)
                        if attempt.charges:
                            written = []
                            self._ancestors.write(attempt.charges, attempt.at, written=written)
                        if attempt.cleared:
                            written = written or []
                            guard._events.emit_run_marks(state, attempt.at, (), attempt.cleared)
                    if guard._stored_marks is not None:
                        guard._stored_marks.save_cleared(attempt)
                    if is_spending and guard._journal is not None:
                        guard._journal.confirm(state.id)  # it is used up on this host alone
                    if decision.violations:
                        entries = (violation.id for violation in decision.violations)
                        self.advice.add(decision.id, attempt.batch, decision.message, entries)
            except (JournalError, StoreError) as error:
                allow = self._allow_on_error and not is_spending
                return self._handle_write_error(decision, attempt, error, written, allow=allow)
        if guard_state.host_reports.pending:
            return guard_state.host_reports.report(decision)
        return decision

    @property
    def _allow_on_error(self) -> bool:
        """Whether calls run on which policyguard itself fails."""
        return self._guard._mode.observe or self._guard._evaluator.allow_on_internal_error

    def _handle_write_error(
        self,
        decision: Decision,
        attempt: Attempt,
        error: Exception,
        emitted: list[ChildCharged] | None,
        *,
        allow: bool,
    ) -> Decision:
        """Decide as `on_internal_error` says (`allow`), since an event could not be written.

        `emitted` are the events of ancestors that were written, None if the call's was not. A
        session that was lost to another host refuses.
        """
        eval_error = EvalError("journal", str(error))
        if self.closed:
            attempt.id = ""
            closed = replace(self._closed_evaluation, errors=(eval_error,))
            return decisions.build_decision(self._state.id, closed, attempt, observe=False)
        if decision.allowed and not allow:
            if self._guard._stored_marks is not None:
                self._guard._stored_marks.withdraw()
            used = attempt.used_approval
            if used is not None and emitted is None and isinstance(error, JournalError):
                self._state.approvals.restore(attempt.approval_fingerprint, used)
            released = Released(self._state.id, attempt.at, decision.id)
            self._guard._state.fold(released)
            if emitted is not None:
                self._journal_reversal([released, *map(reverse, emitted)])
            elif isinstance(error, StoreError):  # it is written, and not anchored
                self._journal_reversal([released])
            evaluation = decisions.internal_error(attempt, error, allow=False)
            evaluation = replace(evaluation, errors=(eval_error,))
            return decisions.build_decision(self._state.id, evaluation, attempt, observe=False)
        return replace(decision, errors=(*decision.errors, eval_error))

    def _journal_reversal(self, events: Iterable[Event]) -> None:
        """Write the reversal of an admission into the journals."""
        for event in events:
            with suppress(JournalError, StoreError):  # the first error is reported
                self._guard._events.emit(event)

    def complete(
        self,
        event: Completed,
        reported: Decision | str | None = None,
        parsed: ToolResult | None = None,
    ) -> Recorded:
        """Classify a result and count it; one of a call that is not in flight counts nowhere.

        A call that was given up as unreported is an exception: its result counts, though late.
        `reported` is what the host named the call by: `UnknownCallError` if it names none, or was
        decided by another guard. `parsed` is a result that is no text.
        """
        guard, state = self._guard, self._state
        with guard._lock:
            is_closed = self.closed
            attempt = None if is_closed else state.in_flight.get(event.call)
            if attempt is None and not is_closed:
                attempt = state.find_unreported(event.call)
            if attempt is None:
                if reported is not None:
                    self.require_known(event.call)
                return self.record_uncounted(event, parsed)
            fingerprint = attempt.exact_fingerprint or attempt.fingerprint
            if type(reported) is Decision and reported.fingerprint != fingerprint:
                self._refuse_other(reported)
            evaluator, evaluator_state = guard._evaluator, guard._state.evaluator_state
            if guard._stored_marks is not None:
                guard._stored_marks.missed = None  # a result counts with what is known here
            at = event.at
            if at is None or state.now is None or at < state.now:  # hardly ever
                at = state.clamp_time(at)
            attempt.mark_completed(at, event.wall)  # its errors are now those of its result
            edited = None
            if evaluator.needs_parts:
                observe = guard._mode.observe
                result, edited = evaluate_parts(evaluator, attempt, event, parsed, observe=observe)
            else:
                result = evaluator.evaluate_result(attempt, event)
            if attempt.is_given_up:
                attempt.errors = (*attempt.errors, decisions.LATE_RESULT)
            observations = () if attempt.is_reduced else guard._state.observe(result)
            if observations:
                result.observations = observations
            if not observations or guard._constraint_sync is None:
                learned = complete_call(evaluator, evaluator_state, result)
            else:
                fold = partial(complete_call, evaluator, evaluator_state, result)
                learned = guard._constraint_sync.complete(fold, result)
            if guard._stored_marks is not None:
                unsaved = guard._stored_marks.try_save()
                if unsaved is not None:
                    attempt.add_error("store", unsaved)
            if edited is not None:
                halt_by_result(evaluator, state, result.report)
            if guard._has_audience:
                try:
                    guard._events.emit_completed(result, bool(learned))
                    if result.charges:
                        self._ancestors.settle(result.charges, attempt)
                    if state.marks is not None and (result.marks or attempt.cleared):
                        again = state.marks.find_cleared_again(attempt)
                        guard._events.emit_run_marks(state, at, result.marks, again)
                except (JournalError, StoreError) as error:
                    attempt.add_error("journal", error)
            advice, pending = "", self.advice
            if pending.texts or pending.answers:
                succeeded = result.outcome.state == "success"
                advice = pending.take(event.call, attempt.batch, succeeded=succeeded)
        if edited is None and parsed is None and not (advice or learned or attempt.errors):
            return Recorded(result.outcome)
        return build_recorded(result.outcome, edited, parsed, advice, learned, attempt.errors)

    def spend(self, event: Spent) -> None:
        """Count what the model used between calls. Raises what `fold` raises."""
        with self._guard._lock:
            evaluator = self._guard._evaluator
            charges = spend_charges(evaluator, self._state, event)
            event = replace(event, session=self._state.id, charges=charges)
            self.fold(event, partial(self._ancestors.write, charges, event.at))

    def approve(self, event: Approved) -> None:
        """Note an approval, and raise the budgets that asked. Raises what `grant` raises."""
        with self._guard._lock:
            raised = self._state.approvals.charges_to_extend(event.fingerprint)
            self.fold(event)
            for charge in raised:  # a repeated approval raises nothing more
                budget, by, wall = charge.budget, event.by, event.wall
                extend = self._guard._evaluator.budgets[budget].extension
                self.grant(
                    Granted(event.session, event.at, budget, extend, by, charge.key, wall=wall)
                )

    def grant(self, event: Granted) -> None:
        """Raise a budget, perhaps an ancestor's. Raises what `fold` raises."""
        with self._guard._lock:
            raised = grant_charge(self._guard._evaluator, self._state, event)
            raised_limits = () if raised is None else (raised,)
            self.fold(event, partial(self._ancestors.write, (), event.at, raised_limits))

    def release(self, event: Released, decision: Decision | str) -> None:
        """Take back the admission of a call, if it is in flight. Raises what `fold` raises.

        And `UnknownCallError`, as `complete` does.
        """
        with self._guard._lock:
            self.require_known(event.call)
            attempt = self._state.in_flight.get(event.call)
            if (
                attempt is not None
                and type(decision) is Decision
                and decision.fingerprint != attempt.approval_fingerprint
            ):
                self._refuse_other(decision)
            if self.closed:
                return
            refunds = negate_charges(attempt.charges) if attempt is not None else ()
            at = attempt.at if attempt is not None else event.at

            def follow() -> None:
                self._ancestors.write(refunds, at)
                if attempt is not None and attempt.cleared_keys:
                    restored = [change for change, _ in attempt.cleared_keys]
                    self._guard._events.emit_run_marks(attempt.session, event.at, restored, ())

            self.fold(event, follow)

    def fold(self, event: Event, charge_ancestors: Callable[[], None] | None = None) -> None:
        """Apply any other event. `ClosedError` if the session is closed.

        Raises `JournalError` as `Guard._apply` does, and `StoreError` if a grant cannot be stored.
        """
        with self._guard._lock:
            if self.closed:
                raise ClosedError(self.closed_reason)
            self._guard._apply(event)
            try:
                if charge_ancestors is not None:
                    charge_ancestors()
            except (JournalError, StoreError) as error:  # its own journal has it
                warn(f"charges of {self._state.id!r} are missing in its parents' journals: {error}")
            if self._guard._stored_marks is not None:
                self._guard._stored_marks.try_save()


def _identify_odd(evaluator: Evaluator, attempt: Attempt) -> tuple[CallIdentity | None, str]:
    """Return the identity of a call with odd arguments, or why there is none."""
    try:
        return evaluator.identify_call(attempt), ""
    except ArgumentsError as error:
        return None, str(error)
