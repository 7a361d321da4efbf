"""Makes grants: approvals that are remembered for calls like the approved one."""

from __future__ import annotations

from datetime import datetime, timedelta
from math import inf
from typing import TYPE_CHECKING, get_args

from msgspec.structs import replace

from policyguard.evaluator.approvals import GivenApproval
from policyguard.evaluator.grants import build_grants
from policyguard.guard import validate
from policyguard.model.decision import Decision
from policyguard.model.effect import Effect
from policyguard.model.errors import ClosedError
from policyguard.model.event import Approved, Refused
from policyguard.model.grant import CallPattern, Grant, GrantRequest, GrantScope, Remember

if TYPE_CHECKING:
    from policyguard.guard.sessions.lifetime import SessionLifetime

_MAX_TIME = 2**63 - 1
_NONE: tuple[Grant, ...] = ()


def read_request(
    remember: Remember | None,
    expires: float | timedelta | datetime | None,
    scope: GrantScope,
    at: int,
    wall: int | None,
) -> GrantRequest | None:
    """Return what an approver wants to be remembered; None for nothing.

    A time by the wall clock is as far ahead by the clock of events, `at`. `TypeError` or
    `ValueError` for a wrong value, a missing time, or one that has passed.
    """
    if remember is None:
        if expires is not None:
            raise ValueError("`expires` is for grants: pass `remember` too")
        return None
    kind = validate.choice("remember", remember, get_args(Remember))
    where = validate.choice("scope", scope, get_args(GrantScope))
    if expires is None:
        raise ValueError("`expires` is missing: say for how long to remember it")
    if isinstance(expires, datetime):
        lasting = validate.timestamp("expires", expires) - (at if wall is None else wall)
    else:
        lasting = round(validate.duration("expires", expires) * 10**9)
    if expires == inf:
        raise ValueError("`expires` is infinite: say for how long to remember it")
    if lasting <= 0:
        raise ValueError(f"`expires` is {expires!r:.60}, which is not in the future")
    return GrantRequest(kind, where, min(at + lasting, _MAX_TIME))


def grant_calls(
    session: SessionLifetime, decision: Decision, approved: Approved, request: GrantRequest
) -> None:
    """Note an approval that is to be remembered, and make the grants that it completes.

    Under the guard's lock. `ClosedError`, `ValueError` for calls that have no such pattern, and
    what writing the store and the journal raises: then there is no grant.
    """
    guard, pipeline = session.guard, session._pipeline
    if pipeline.closed:
        raise ClosedError(pipeline.closed_reason)
    pattern, grants = "", _NONE
    asked = session._state.approvals.requests.get(approved.fingerprint)
    if asked is not None and asked.call is not None:
        calls = find_pattern(session, asked.call, request.remember)
        grants = _build(session, decision, asked.call, calls, approved, request)
        pattern = calls.text
    approved = replace(
        approved,
        remember=request.remember,
        scope=request.scope,
        expires_at=request.expires_at,
        pattern=pattern,
        grants=tuple([grant.id for grant in grants]),
    )
    sync = guard._grant_sync
    if sync is not None:
        sync.add(grants)
    try:
        pipeline.approve(approved)
    except BaseException:
        if sync is not None:
            sync.withdraw(grants)
        raise
    for grant in grants:
        guard._state.evaluator_state.grants.put(grant)


def _build(
    session: SessionLifetime,
    decision: Decision,
    call: Refused,
    pattern: CallPattern,
    approved: Approved,
    request: GrantRequest,
) -> tuple[Grant, ...]:
    asking = [one.id for one in decision.violations if one.effect is Effect.ASK]
    return build_grants(
        session._state,
        call,
        pattern,
        [id_ for id_ in asking if id_ in call.violations],
        GivenApproval(approved.by, frozenset(approved.labels), approved.at, request),
        session.guard._evaluator.approval_requirements,
    )


def find_pattern(session: SessionLifetime, call: Refused, remember: str) -> CallPattern:
    """Return which calls a grant would cover. `ValueError` for a call that has no such pattern."""
    evaluator, cwd = session.guard._evaluator, session._state.cel_session["cwd"]
    try:
        pattern = evaluator.patterns.find_pattern(call, remember, cwd)
        if evaluator.activation_context.redact(pattern.text) != pattern.text:
            raise ValueError("it holds what the policy masks, and a grant would show that")
    except ValueError as error:
        shown = f"call `{call.call}` cannot be remembered by its {remember}"
        raise ValueError(f"{shown}: {error}") from None
    return pattern
