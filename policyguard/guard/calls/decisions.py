"""Builds decisions, and the events of calls."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec.structs import replace

from policyguard.evaluator.activation import CheckTags
from policyguard.evaluator.attempt import EMPTY, Attempt, CallResult
from policyguard.evaluator.evaluation import INTERNAL_ERROR, Evaluation
from policyguard.guard import validate
from policyguard.guard.calls.ids import parse_call_number
from policyguard.guard.host_log import warn
from policyguard.model.decision import Decision, EvalError, Violation
from policyguard.model.effect import Effect
from policyguard.model.event import ESTIMATE_KEYS, HINT_KEYS, Admitted, Completed, Refused

_QUOTING = "a note that quotes the call"
"""Stands in a journal for a text that does."""


def set_context(
    attempt: Attempt,
    check_tags: CheckTags,
    *,
    server: str = "",
    batch: str | None = None,
    call: str | None = None,
    tags: Mapping[str, Any] | None = None,
    hints: Mapping[str, bool] | None = None,
    estimate: Mapping[str, float] | None = None,
) -> None:
    """Set what else the host says of a call. Raises as `validate` does, and for wrong tags."""
    if not (batch or tags or server or hints or estimate or call):
        return
    attempt.batch = validate.optional_text("batch", batch)
    attempt.host_call = validate.identifier("call", call)
    if parse_call_number(attempt.host_call):
        raise ValueError(f"`call` is `{call}`, like an id of policyguard's own; add a prefix")
    attempt.server = validate.optional_text("server", server)
    attempt.tags = check_tags(validate.mapping("tags", tags), overlay=True) if tags else EMPTY
    attempt.hints = validate.bools("hints", hints, HINT_KEYS) if hints else EMPTY
    attempt.estimate = validate.numbers("estimate", estimate, ESTIMATE_KEYS) if estimate else EMPTY


def build_decision(
    session: str, evaluation: Evaluation, attempt: Attempt, *, observe: bool
) -> Decision:
    """Return an evaluation as a decision. With `observe` it has no timeout."""
    allowed = evaluation.allowed
    timeout = attempt.timeout if allowed and not observe else None
    return Decision(
        attempt.id,
        session,
        attempt.shown_tool,
        evaluation.effect,
        allowed,
        attempt.approval_fingerprint,
        evaluation.violations,
        evaluation.errors,
        evaluation.would,
        timeout / 1e9 if timeout is not None else None,
        attempt.timeout_by if timeout is not None else "",
        evaluation.remaining,
        evaluation.time_budgets,
        evaluation.grants,
        evaluation.waived,
        evaluation.units,
    )


def note_unreported(decision: Decision) -> tuple[Decision, bool]:
    """Say that calls repeat of which none was ever reported. Return also whether that is so."""
    counts = (v.used for v in decision.violations if v.reason in _COUNTS_IN_FLIGHT)
    if all(count is None for count in counts):
        return decision, False
    warn(f"session {decision.session!r}: {_UNREPORTED.error}")
    return replace(decision, errors=(*decision.errors, _UNREPORTED)), True


def _block(violation: Violation, *errors: EvalError) -> Evaluation:
    return Evaluation(Effect.BLOCK, (violation,), (), errors)


def _block_closed(text: str, remedy: str) -> Evaluation:
    """Tell the model that it is over, and the host what to do."""
    violation = Violation("session/closed", Effect.BLOCK, "closed", text, "tell the user")
    return _block(violation, EvalError("session/closed", f"{text}: {remedy}"))


NOTHING_REPORTED = EvalError(
    "session/unreported", "no call has been reported; call `record` after each call"
)
_UNREPORTED = EvalError(
    "session/unreported",
    "no call has been reported, so all count as unchanged; call `record` after each call",
)
_COUNTS_IN_FLIGHT = ("repeat", "cycle", "polling")
SESSION_ENDED = _block_closed("the session is over", "open a new session")
SESSION_CLOSED = _block_closed("the session is closed", "open it again with `guard.session`")
GUARD_CLOSED = _block_closed("the guard is closed", "load another guard, and open a session there")


LATE_RESULT = EvalError(
    "bounds/unreported",
    "the call was given up as unreported, and its slots in `concurrent` budgets were freed; its "
    "result, cost and tokens count from now on",
)
FORGOTTEN_CALL = EvalError(
    "bounds/given_up",
    "the result counts nowhere: it was reported before, or the call is one of too many unreported "
    "ones; report calls when they end, or raise `bounds.given_up`",
)


def invalid_arguments(attempt: Attempt, reason: str, *, observe: bool) -> Evaluation:
    """Refuse a call whose arguments are not plain JSON, or too large.

    With `observe` it runs and counts nowhere, since it cannot be identified.
    """
    violation = Violation(
        "bounds/arguments",
        Effect.BLOCK,
        "arguments",
        f"the arguments cannot be checked: {attempt.sanitize_reason(reason)}",
        "call the tool with plain JSON arguments of ordinary size",
    )
    return Evaluation(Effect.ALLOW, (), (violation,), ()) if observe else _block(violation)


def refuse_changed(decision: Decision) -> Decision:
    """Refuse an admitted call: its arguments have changed since it was decided."""
    text = "its arguments were changed after it was checked, before it ran"
    violation = Violation("arguments/changed", Effect.BLOCK, "arguments", text, "call it again")
    changed = {"effect": Effect.BLOCK, "allowed": False, "violations": (violation,)}
    return replace(decision, **changed, timeout=None, timeout_by="")


def internal_error(attempt: Attempt, error: Exception, *, allow: bool) -> Evaluation:
    """Refuse or allow a call on which policyguard itself failed."""
    internal = EvalError("internal", attempt.sanitize_reason(f"{type(error).__name__}: {error}"))
    if allow:
        return Evaluation(Effect.ALLOW, (), (), (internal,))
    text = "policyguard failed to check this call"
    return _block(Violation(INTERNAL_ERROR, Effect.BLOCK, "internal_error", text), internal)


def build_admitted(attempt: Attempt, decision: Decision) -> Admitted:
    """Return the event of an admitted call."""
    marks = attempt.session.marks
    return Admitted(
        **_attempt_fields(attempt, decision),
        state_changing=attempt.bound_plan.plan.is_state_changing(attempt),
        probes=attempt.probes,
        charges=attempt.charges,
        radius=attempt.radius,
        cleared=attempt.cleared,
        clearings=0 if marks is None else marks.number_admission(attempt),
        taken=() if marks is None else marks.find_taken(attempt),
        grants=tuple([grant.id for grant in decision.grants]),
        advice=_advice_to_keep(decision),
    )


def _advice_to_keep(decision: Decision) -> str:
    """Return what the model reads of an admitted call, without words of the call itself."""
    violations = decision.violations
    if any(one.quotes for one in violations):
        violations = tuple(
            [
                replace(one, text=_QUOTING, instead="", doubt="") if one.quotes else one
                for one in violations
            ]
        )
        decision = replace(decision, violations=violations)
    return decision.message if violations else ""


def build_refused(attempt: Attempt, decision: Decision) -> Refused:
    """Return the event of a refused call."""
    return Refused(
        **_attempt_fields(attempt, decision),
        attempt_charges=attempt.attempt_charges,
        approval_charges=attempt.approval_charges,
    )


def _attempt_fields(attempt: Attempt, decision: Decision) -> dict[str, Any]:
    """Return the fields that `Admitted` and `Refused` share."""
    classes = tuple(attempt.classes)
    return {
        "session": attempt.session.id,
        "at": attempt.at,
        "wall": None if attempt.wall == attempt.at else attempt.wall,
        "call": attempt.id,
        "tool": attempt.tool,
        "args": attempt.args,
        "server": attempt.server,
        "batch": attempt.batch,
        "host_call": attempt.host_call,
        "host_tool": attempt.host_tool,
        "likeness": "" if attempt.likeness == attempt.fingerprint else attempt.likeness,
        "tags": dict(attempt.tags) if attempt.tags else {},
        "hints": dict(attempt.hints) if attempt.hints else {},
        "estimate": dict(attempt.estimate) if attempt.estimate else {},
        "pins": dict(attempt.pins) if attempt.pins else {},
        "class_": attempt.class_,
        "classes": classes if len(classes) > 1 else (),
        "fingerprint": attempt.fingerprint,
        "loose_fingerprint": attempt.loose_fingerprint,
        "numbers": attempt.numbers,
        "targets": attempt.targets,
        "exact_fingerprint": attempt.exact_fingerprint,
        "keys": dict(attempt.keys) if attempt.keys else {},
        # A plain `str`: an enum would be written though it is the default.
        "effect": decision.effect.value,
        "violations": tuple([violation.id for violation in decision.violations]),
        "would": tuple([violation.id for violation in decision.would]),
        "waived": {waiver.violation: waiver.exception for waiver in decision.waived},
    }


def build_completed(result: CallResult) -> Completed:
    """Return a reported result as it was evaluated."""
    outcome, report, at = result.outcome, result.report, result.attempt.completed_at
    return replace(
        report,
        at=at,
        wall=None if report.wall == at else report.wall,
        ok=None if outcome.state == "cancelled" else outcome.ok,
        signature=outcome.signature,
        blame=outcome.blame,
        result_fingerprint=outcome.result_fingerprint,
        like_result=outcome.like_result,
        error_fingerprint=outcome.error_fingerprint,
        charges=result.charges,
        observations=result.observations,
        state=outcome.state if outcome.state in ("pending", "cancelled") else "",
        advancing=outcome.advancing,
        harness_flagged=outcome.harness_flagged,
        marks=result.marks,
    )
