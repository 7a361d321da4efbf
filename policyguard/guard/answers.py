"""What a session is asked and answers, and the events that say what it did."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from policyguard.evaluator.attempt import Attempt
from policyguard.evaluator.evaluator import Request, Verdict
from policyguard.model.constraint import Lesson
from policyguard.model.decision import Decision, Fault, Violation
from policyguard.model.effect import Effect
from policyguard.model.event import Admitted, Charge, Completed, Refused
from policyguard.model.outcome import Outcome


def request(
    tool: str,
    args: Mapping[str, Any] | None,
    batch: str | None,
    tags: Mapping[str, Any] | None,
    server: str,
    hints: Mapping[str, bool] | None,
    estimate: Mapping[str, float] | None,
) -> Request:
    """A call as its caller puts it, with copies of what the caller may go on to change."""
    return Request(
        tool,
        dict(args) if args else {},
        server,
        batch or "",
        dict(tags) if tags else {},
        dict(hints) if hints else {},
        dict(estimate) if estimate else {},
    )


def decision(
    session: str, tool: str, call: str, verdict: Verdict, attempt: Attempt | None
) -> Decision:
    """A verdict as the caller gets it."""
    effect = verdict.effect
    allowed = effect is Effect.ALLOW or effect is Effect.ADVISE or verdict.passes
    timeout = attempt.timeout if attempt is not None and allowed else None
    return Decision(
        id=call,
        session=session,
        tool=tool,
        effect=effect,
        allowed=allowed,
        violations=verdict.violations,
        fingerprint=attempt.fingerprint if attempt is not None else "",
        errors=verdict.faults,
        would=verdict.would,
        timeout=timeout / 1e9 if timeout is not None else None,
        timeout_by=attempt.timeout_by if attempt is not None and timeout is not None else "",
        left=verdict.left,
    )


def _blocked(violation: Violation, *faults: Fault) -> Verdict:
    return Verdict(Effect.BLOCK, (violation,), (), faults)


CLOSED = _blocked(
    Violation("session/closed", Effect.BLOCK, "closed", "the session is over", "open a new session")
)
"""To a call in a session that is over."""


def unfit(reason: str) -> Verdict:
    """To a call with arguments that cannot be judged."""
    return _blocked(
        Violation(
            "bounds/arguments",
            Effect.BLOCK,
            "arguments",
            f"the arguments cannot be judged: {reason}",
            "call the tool with plain JSON arguments of ordinary size",
        )
    )


def broken(error: Exception, *, allow: bool) -> Verdict:
    """To a call that policyguard itself failed on."""
    fault = Fault("internal", f"{type(error).__name__}: {error}")
    if allow:
        return Verdict(Effect.ALLOW, (), (), (fault,))
    text = "policyguard could not judge this call"
    return _blocked(Violation("internal", Effect.BLOCK, "internal_error", text), fault)


def admitted(session: str, attempt: Attempt, decision: Decision) -> Admitted:
    """The event of a call that was let through."""
    return Admitted(
        session,
        attempt.at,
        attempt.id,
        attempt.tool,
        attempt.args,
        attempt.server,
        attempt.batch,
        attempt.tags,
        attempt.hints,
        attempt.estimate,
        attempt.class_,
        attempt.fingerprint,
        attempt.like,
        attempt.numbers,
        attempt.targets,
        attempt.changing,
        attempt.keys,
        attempt.trials,
        tuple(attempt.charges),
        attempt.radius,
        decision.effect,
        tuple(violation.id for violation in decision.violations),
    )


def refused(
    decision: Decision,
    request: Request,
    attempt: Attempt | None,
    at: int | None,
) -> Refused:
    """The event of a call that was not."""
    return Refused(
        decision.session,
        at,
        decision.id,
        request.tool,
        request.args,
        request.server,
        request.batch,
        request.tags,
        request.hints,
        request.estimate,
        attempt.class_ if attempt is not None else "",
        decision.fingerprint,
        effect=decision.effect,
        violations=tuple(violation.id for violation in decision.violations),
        keys=attempt.keys if attempt is not None else {},
        insisted=tuple(attempt.insisted) if attempt is not None else (),
        asks=tuple(attempt.asks) if attempt is not None else (),
        targets=attempt.targets if attempt is not None else (),
    )


def completed(
    event: Completed,
    at: int | None,
    outcome: Outcome,
    charges: tuple[Charge, ...],
    lessons: tuple[Lesson, ...],
) -> Completed:
    """A reported result as it was judged."""
    return Completed(
        event.session,
        at,
        event.call,
        outcome.ok,
        event.known,
        event.text,
        event.error,
        event.exit_code,
        event.status,
        event.retry_after,
        event.duration,
        event.tokens,
        event.cost,
        event.score,
        event.meta,
        outcome.signature,
        outcome.blame,
        outcome.result,
        outcome.failure,
        charges,
        lessons,
        "pending" if outcome.state == "pending" else "",
        outcome.advancing,
        outcome.infra,
        event.timeout_by,
        event.running,
    )
