"""Builds decisions, and the events of calls."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec.structs import replace

from policyguard.evaluator.attempt import EMPTY, Attempt
from policyguard.evaluator.evaluation import Evaluation
from policyguard.evaluator.evaluator import CheckTags
from policyguard.guard import validate
from policyguard.model.constraint import Observation
from policyguard.model.decision import Decision, EvalError, Violation
from policyguard.model.effect import Effect
from policyguard.model.event import ESTIMATE_KEYS, HINT_KEYS, Admitted, Charge, Completed, Refused
from policyguard.model.outcome import Outcome


def set_context(
    attempt: Attempt,
    check_tags: CheckTags,
    batch: str | None,
    tags: Mapping[str, Any] | None,
    server: str | None,
    hints: Mapping[str, bool] | None,
    estimate: Mapping[str, float] | None,
    host_call: str | None,
) -> None:
    """Set what else the host says of a call. Raises as `validate` does, and for wrong tags."""
    attempt.batch = validate.optional_text("batch", batch)
    attempt.host_call = validate.identifier("call", host_call)
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
        attempt.tool,
        evaluation.effect,
        allowed,
        attempt.approval_fingerprint,
        evaluation.violations,
        evaluation.errors,
        evaluation.would,
        timeout / 1e9 if timeout is not None else None,
        attempt.timeout_by if timeout is not None else "",
        evaluation.remaining,
    )


def _block(violation: Violation, *errors: EvalError) -> Evaluation:
    return Evaluation(Effect.BLOCK, (violation,), (), errors)


def _block_closed(text: str, instead: str) -> Evaluation:
    return _block(Violation("session/closed", Effect.BLOCK, "closed", text, instead))


SESSION_ENDED = _block_closed("the session is over", "open a new session")
SESSION_CLOSED = _block_closed("the session is closed", "open it again with `guard.session`")
GUARD_CLOSED = _block_closed("the guard is closed", "load another guard, and open a session there")


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


def internal_error(attempt: Attempt, error: Exception, *, allow: bool) -> Evaluation:
    """Refuse or allow a call on which policyguard itself failed."""
    internal = EvalError("internal", attempt.sanitize_reason(f"{type(error).__name__}: {error}"))
    if allow:
        return Evaluation(Effect.ALLOW, (), (), (internal,))
    text = "policyguard failed to check this call"
    return _block(Violation("internal", Effect.BLOCK, "internal_error", text), internal)


def build_admitted(attempt: Attempt, decision: Decision) -> Admitted:
    """Return the event of an admitted call."""
    return Admitted(
        *_attempt_fields(attempt),
        attempt.bound_plan.plan.is_state_changing(attempt),
        dict(attempt.keys) if attempt.keys else {},
        attempt.probes,
        attempt.charges,
        attempt.radius,
        decision.effect.value,  # a plain `str`: an enum would be written though it is the default
        tuple([one.id for one in decision.violations]) if decision.violations else (),
    )


def build_refused(attempt: Attempt, decision: Decision) -> Refused:
    """Return the event of a refused call."""
    return Refused(
        *_attempt_fields(attempt),
        effect=decision.effect.value,
        violations=tuple([violation.id for violation in decision.violations]),
        keys=dict(attempt.keys) if attempt.keys else {},
        attempt_charges=attempt.attempt_charges,
        approval_charges=attempt.approval_charges,
    )


_Shared = tuple[
    str,
    int | None,
    str,
    str,
    dict[str, Any],
    str,
    str,
    str,
    dict[str, Any],
    dict[str, bool],
    dict[str, float],
    str,
    str,
    str,
    tuple[float, ...],
    tuple[str, ...],
    str,
]


def _attempt_fields(attempt: Attempt) -> _Shared:
    """Return the fields that `Admitted` and `Refused` share, in their order."""
    return (
        attempt.session.id,
        attempt.at,
        attempt.id,
        attempt.tool,
        attempt.args,
        attempt.server,
        attempt.batch,
        attempt.host_call,
        dict(attempt.tags) if attempt.tags else {},
        dict(attempt.hints) if attempt.hints else {},
        dict(attempt.estimate) if attempt.estimate else {},
        attempt.class_,
        attempt.fingerprint,
        attempt.loose_fingerprint,
        attempt.numbers,
        attempt.targets,
        attempt.exact_fingerprint,
    )


def build_completed(
    event: Completed,
    at: int | None,
    outcome: Outcome,
    charges: tuple[Charge, ...],
    observations: tuple[Observation, ...],
) -> Completed:
    """Return a reported result as it was evaluated."""
    return replace(
        event,
        at=at,
        ok=outcome.ok,
        signature=outcome.signature,
        blame=outcome.blame,
        result_fingerprint=outcome.result_fingerprint,
        error_fingerprint=outcome.error_fingerprint,
        charges=charges,
        observations=observations,
        state="pending" if outcome.state == "pending" else "",
        advancing=outcome.advancing,
        harness_flagged=outcome.harness_flagged,
    )
