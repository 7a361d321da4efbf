"""What a session is asked and answers, and the events that say what it did."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from policyguard.evaluator.attempt import NOTHING, Attempt
from policyguard.evaluator.evaluator import CheckTags
from policyguard.evaluator.verdict import Verdict
from policyguard.guard import given
from policyguard.model.constraint import Lesson
from policyguard.model.decision import Decision, Fault, Violation
from policyguard.model.effect import Effect
from policyguard.model.event import ESTIMATES, HINTS, Admitted, Charge, Completed, Refused
from policyguard.model.outcome import Outcome


def tell(
    attempt: Attempt,
    check_tags: CheckTags,
    batch: str | None,
    tags: Mapping[str, Any] | None,
    server: str | None,
    hints: Mapping[str, bool] | None,
    estimate: Mapping[str, float] | None,
) -> None:
    """Say what else the caller knows of a call. Raises as `given` does, and for wrong tags."""
    attempt.batch = given.optional("batch", batch)
    attempt.server = given.optional("server", server)
    attempt.tags = check_tags(given.facts("tags", tags), overlay=True) if tags else NOTHING
    attempt.hints = given.flags("hints", hints, HINTS) if hints else NOTHING
    attempt.estimate = given.numbers("estimate", estimate, ESTIMATES) if estimate else NOTHING


def decision(session: str, verdict: Verdict, attempt: Attempt, *, observe: bool) -> Decision:
    """A verdict as the caller gets it. With `observe` no time is set for the call either."""
    allowed = verdict.allowed
    timeout = attempt.timeout if allowed and not observe else None
    return Decision(
        attempt.id,
        session,
        attempt.tool,
        verdict.effect,
        allowed,
        attempt.own,
        verdict.violations,
        verdict.faults,
        verdict.would,
        timeout / 1e9 if timeout is not None else None,
        attempt.timeout_by if timeout is not None else "",
        verdict.left,
    )


def _blocked(violation: Violation, *faults: Fault) -> Verdict:
    return Verdict(Effect.BLOCK, (violation,), (), faults)


def _closed(text: str, instead: str) -> Verdict:
    return _blocked(Violation("session/closed", Effect.BLOCK, "closed", text, instead))


CLOSED = _closed("the session is over", "open a new session")
"""To a call in a session that is over."""

LEFT = _closed("the guard is closed", "load another guard, and open a session there")
"""To a call in a session whose guard is closed."""


def unfit(attempt: Attempt, reason: str, *, observe: bool) -> Verdict:
    """To a call with arguments that cannot be judged.

    With `observe` it runs, and is counted nowhere: which call it was cannot be told.
    """
    violation = Violation(
        "bounds/arguments",
        Effect.BLOCK,
        "arguments",
        f"the arguments cannot be judged: {attempt.told(reason)}",
        "call the tool with plain JSON arguments of ordinary size",
    )
    return Verdict(Effect.ALLOW, (), (violation,), ()) if observe else _blocked(violation)


def broken(attempt: Attempt, error: Exception, *, allow: bool) -> Verdict:
    """To a call that policyguard itself failed on."""
    fault = Fault("internal", attempt.told(f"{type(error).__name__}: {error}"))
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
        dict(attempt.tags) if attempt.tags else {},
        dict(attempt.hints) if attempt.hints else {},
        dict(attempt.estimate) if attempt.estimate else {},
        attempt.class_,
        attempt.fingerprint,
        attempt.like,
        attempt.numbers,
        attempt.targets,
        attempt.exact,
        attempt.walk.plan.changes(attempt),
        dict(attempt.keys) if attempt.keys else {},
        attempt.trials,
        attempt.charges,
        attempt.radius,
        decision.effect.value,  # of `str` itself: else the default is written, too
        tuple([one.id for one in decision.violations]) if decision.violations else (),
    )


def refused(decision: Decision, attempt: Attempt) -> Refused:
    """The event of a call that was not."""
    return Refused(
        decision.session,
        attempt.at,
        attempt.id,
        attempt.tool,
        attempt.args,
        attempt.server,
        attempt.batch,
        dict(attempt.tags) if attempt.tags else {},
        dict(attempt.hints) if attempt.hints else {},
        dict(attempt.estimate) if attempt.estimate else {},
        attempt.class_,
        attempt.fingerprint,
        like=attempt.like,
        numbers=attempt.numbers,
        targets=attempt.targets,
        exact=attempt.exact,
        effect=decision.effect.value,
        violations=tuple([violation.id for violation in decision.violations]),
        keys=dict(attempt.keys) if attempt.keys else {},
        insisted=attempt.insisted,
        asks=attempt.asks,
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
