"""What each request of the service does to a guard's sessions.

The one-shot commands `policyguard check` and `policyguard record` use the same operations.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any, NamedTuple

import msgspec

from policyguard.adapters.service.protocol import (
    ApprovalsAnswer,
    ApproveAnswer,
    ApproveRequest,
    CallRequest,
    CheckAnswer,
    CheckRequest,
    DenyAnswer,
    DenyRequest,
    Done,
    GrantRequest,
    ListRequest,
    MarkRequest,
    OfferRequest,
    OutcomeAnswer,
    RecordAnswer,
    RecordRequest,
    RevokeAnswer,
    RevokeRequest,
    SpendRequest,
)
from policyguard.adapters.sessions import (
    ServedSessions,
    SessionAnswer,
    SessionRequest,
    describe_session,
)
from policyguard.adapters.waiting import holding
from policyguard.guard.approvals.questions import find_asked
from policyguard.guard.session import Session
from policyguard.model.decision import Decision
from policyguard.model.errors import UnknownCallError


def check(sessions: ServedSessions, request: CheckRequest) -> CheckAnswer:
    """Decide on a call, and count it if it may run."""
    session = sessions.open(request)
    options: dict[str, Any] = {
        "server": request.server,
        "batch": request.batch,
        "tags": request.tags or None,
        "hints": request.hints or None,
        "definition": request.definition,
        "estimate": request.estimate or None,
    }
    call = request.call
    with holding(request.wait) if request.wait else nullcontext():
        decision = sessions.check(
            session, request.tool, request.args, call, may_be_repeated=request.retry, **options
        )
    return _answer_check(decision, call or decision.id)


def preview(sessions: ServedSessions, request: CheckRequest) -> CheckAnswer:
    """Decide as `check` would, and change nothing."""
    decision = sessions.open(request).preview(
        request.tool,
        request.args,
        server=request.server,
        batch=request.batch,
        tags=request.tags or None,
        hints=request.hints or None,
        definition=request.definition,
        estimate=request.estimate or None,
    )
    return _answer_check(decision, "")


def record(sessions: ServedSessions, request: RecordRequest) -> RecordAnswer:
    """Report the result of a call."""
    session = sessions.open(request)
    recorded = sessions.record(
        session,
        request.call,
        result=request.result,
        error=asyncio.CancelledError(request.error or "") if request.cancelled else request.error,
        exit_code=request.exit_code,
        status=request.status,
        retry_after=request.retry_after,
        blame=request.blame,
        duration=request.duration,
        tokens=request.tokens,
        cost=request.cost,
        score=request.score,
        meta=request.meta or None,
    )
    outcome = recorded.outcome
    return RecordAnswer(
        text=recorded.text,
        result=recorded.result,
        advice=recorded.advice,
        outcome=OutcomeAnswer(
            ok=outcome.ok, state=outcome.state, signature=outcome.signature, blame=outcome.blame
        ),
        violations=recorded.violations,
        learned=[*recorded.learned],
        errors=recorded.errors,
        counted=recorded.counted,
    )


def release(sessions: ServedSessions, request: CallRequest) -> Done:
    """Take back the admission of a call that did not run."""
    sessions.open(request).release(request.call)
    return Done()


def approve(sessions: ServedSessions, request: ApproveRequest) -> ApproveAnswer:
    """Approve a call whose effect is *ask*, and perhaps calls like it."""
    session = sessions.open(request)
    decision = _find_asked(sessions, session, request.call)
    approved = session.approve(
        decision,
        by=request.by,
        labels=request.labels,
        remember=request.remember,
        expires=request.expires,
        scope=request.scope,
    )
    detail = "" if approved else _say_what_is_missing(sessions, session, decision)
    return ApproveAnswer(approved=approved, detail=detail)


def deny(sessions: ServedSessions, request: DenyRequest) -> DenyAnswer:
    """Say no to a call whose effect is *ask*."""
    session = sessions.open(request)
    decision = _find_asked(sessions, session, request.call)
    denied = session.deny(decision, by=request.by, labels=request.labels, message=request.message)
    detail = "" if denied else _say_what_is_missing(sessions, session, decision)
    return DenyAnswer(denied=denied, detail=detail)


def _find_asked(sessions: ServedSessions, session: Session, call: str) -> Decision:
    decision = sessions.asked.get((session.id, call))
    if decision is None:  # it was asked about before this service began
        decision = find_asked(session._state, call)
    if decision is None:
        raise UnknownCallError(
            f"call `{call}` of session `{session.id}` does not wait for an approval: "
            "check it again, then answer"
        )
    return decision


def _say_what_is_missing(sessions: ServedSessions, session: Session, decision: Decision) -> str:
    """Return why an answer to a call did not suffice."""
    approvals = session._state.approvals
    denial = approvals.denied.get(decision.fingerprint)
    if denial is not None:
        return f"{denial.by} has denied it"
    request = approvals.requests.get(decision.fingerprint)
    waiting = sessions.guard.questions() if request is not None and request.call else ()
    for one in waiting:
        asked = request.call if request is not None else None
        if one.session == session.id and asked and one.call in (asked.call, asked.host_call):
            given = len(one.approved_by)
            people = f"{given} of {one.approvers} people have approved it"
            labels = f"; an answer counts from {' or '.join(one.labels)}" if one.labels else ""
            return people + labels
    return "it waits no longer: it was answered, has run, or has expired"


def approvals(sessions: ServedSessions, _: ListRequest) -> ApprovalsAnswer:
    """List the calls that wait for an approval: someone will answer them."""
    sessions.guard.expect_answers()
    found = []
    for question in sessions.guard.questions(also_closed=True):
        decision = sessions.asked.get((question.session, question.call))
        message = "" if decision is None else decision.message
        found.append(msgspec.structs.replace(question, message=message))
    return ApprovalsAnswer(approvals=found)


def grant(sessions: ServedSessions, request: GrantRequest) -> Done:
    """Raise a budget of a session."""
    sessions.open(request).grant(request.budget, request.amount, by=request.by)
    return Done()


def turn(sessions: ServedSessions, request: SessionRequest) -> Done:
    """Begin a new turn."""
    sessions.open(request).turn()
    return Done()


def spend(sessions: ServedSessions, request: SpendRequest) -> Done:
    """Count tokens, cost and calls of the model."""
    sessions.open(request).spend(
        tokens=request.tokens, cost=request.cost, model_calls=request.model_calls
    )
    return Done()


def mark(sessions: ServedSessions, request: MarkRequest) -> Done:
    """Set a mark of the policy."""
    sessions.open(request).mark(request.mark, request.key)
    return Done()


def unmark(sessions: ServedSessions, request: MarkRequest) -> Done:
    """Clear a mark of the policy."""
    sessions.open(request).unmark(request.mark, request.key)
    return Done()


def offer(sessions: ServedSessions, request: OfferRequest) -> SessionAnswer:
    """Say which tools the agent has; the answer names those that are disabled."""
    session = sessions.open(request)
    session.offer(request.tools)
    return describe_session(session)


def open_session(sessions: ServedSessions, request: SessionRequest) -> SessionAnswer:
    """Open or resume a session."""
    return describe_session(sessions.open(request))


def close(sessions: ServedSessions, request: SessionRequest) -> Done:
    """Close a session: another process may resume it."""
    sessions.open(request).close()
    return Done()


def end(sessions: ServedSessions, request: SessionRequest) -> Done:
    """End a run."""
    sessions.open(request).end()
    return Done()


def revoke(sessions: ServedSessions, request: RevokeRequest) -> RevokeAnswer:
    """Revoke a learned constraint or a grant."""
    return RevokeAnswer(revoked=sessions.guard.revoke(request.id, by=request.by))


def _answer_check(decision: Decision, call: str) -> CheckAnswer:
    """Return a decision as an answer."""
    return CheckAnswer(
        call=call,
        effect=decision.effect.value,
        allowed=decision.allowed,
        message=decision.message,
        violations=decision.violations,
        would=decision.would,
        errors=decision.errors,
        structured=decision.structured,
        timeout=decision.timeout,
    )


class Operation(NamedTuple):
    """A request that the service takes: its path, what it is decoded to, and what it does.

    `session_bound` requests name a session, which may have to be opened first.
    """

    path: str
    request: type[msgspec.Struct]
    answer: type[msgspec.Struct]
    run: Callable[[ServedSessions, Any], msgspec.Struct]
    session_bound: bool = True


OPERATIONS = (
    Operation("/v1/check", CheckRequest, CheckAnswer, check),
    Operation("/v1/record", RecordRequest, RecordAnswer, record),
    Operation("/v1/preview", CheckRequest, CheckAnswer, preview),
    Operation("/v1/release", CallRequest, Done, release),
    Operation("/v1/approve", ApproveRequest, ApproveAnswer, approve),
    Operation("/v1/deny", DenyRequest, DenyAnswer, deny),
    Operation("/v1/approvals", ListRequest, ApprovalsAnswer, approvals, session_bound=False),
    Operation("/v1/grant", GrantRequest, Done, grant),
    Operation("/v1/turn", SessionRequest, Done, turn),
    Operation("/v1/spend", SpendRequest, Done, spend),
    Operation("/v1/mark", MarkRequest, Done, mark),
    Operation("/v1/unmark", MarkRequest, Done, unmark),
    Operation("/v1/offer", OfferRequest, SessionAnswer, offer),
    Operation("/v1/sessions", SessionRequest, SessionAnswer, open_session),
    Operation("/v1/close", SessionRequest, Done, close),
    Operation("/v1/end", SessionRequest, Done, end),
    Operation("/v1/revoke", RevokeRequest, RevokeAnswer, revoke, session_bound=False),
)
