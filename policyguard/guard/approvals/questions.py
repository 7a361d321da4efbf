"""The calls of open sessions that wait for an approval."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from policyguard.evaluator.evaluator import Evaluator
from policyguard.evaluator.session_state import SessionState
from policyguard.model.decision import Decision, Violation
from policyguard.model.effect import Effect
from policyguard.model.question import OpenQuestion

_NS = 1_000_000_000


def open_questions(
    evaluator: Evaluator, state: SessionState, at: int, redact: Callable[[str], str]
) -> Iterator[OpenQuestion]:
    """Yield the calls of a session that wait for an approval at `at` (ns), the oldest first."""
    for fingerprint, request in state.approvals.requests.items():
        call = request.call
        if call is None:
            continue
        known = evaluator.approval_requirements
        needed = [known[id_] for id_ in call.violations if id_ in known]
        approvals = state.approvals
        if all(approvals.is_approved(fingerprint, known.get(id_), at) for id_ in call.violations):
            continue
        received = approvals.received.get(fingerprint, ())
        strictest = max(needed, key=lambda one: one.approvers, default=None)
        counted = approvals.find_counted(fingerprint, received, strictest, at)
        within = min((one.within for one in needed), default=None)
        if within is not None and approvals.is_expired(fingerprint, within, at):
            continue
        expires_at = None if within is None or request.at is None else request.at + within
        yield OpenQuestion(
            session=state.id,
            call=call.host_call or call.call,
            tool=call.shown_tool,
            args=None if call.args is None else redact_arguments(call.args, redact),
            entries=call.violations,
            asked_at=_seconds(request.at),
            expires_at=_seconds(expires_at),
            approvers=1 if strictest is None else strictest.approvers,
            approved_by=tuple(one.by for one in counted),
            labels=tuple(sorted(frozenset().union(*(one.labels for one in needed)))),
            parent="" if state.parent is None else state.parent.id,
            agent=state.scope_keys["agent"],
            user=state.scope_keys["user"],
            project=state.scope_keys["project"],
        )


def find_asked(state: SessionState, call: str) -> Decision | None:
    """Return the decision on a call that waits for an approval, as `Session.approve` takes it."""
    for fingerprint, request in state.approvals.requests.items():
        asked = request.call
        if asked is not None and call in (asked.call, asked.host_call):
            return Decision(
                asked.call,
                state.id,
                asked.shown_tool,
                Effect.ASK,
                False,
                fingerprint=fingerprint,
                violations=tuple(Violation(id_, Effect.ASK, "", "") for id_ in asked.violations),
            )
    return None


def redact_arguments(value: Any, redact: Callable[[str], str]) -> Any:
    """Return a copy of arguments, with redacted texts."""
    if isinstance(value, str):
        return redact(value)
    if isinstance(value, dict):
        return {key: redact_arguments(item, redact) for key, item in value.items()}
    return [redact_arguments(item, redact) for item in value] if isinstance(value, list) else value


def _seconds(at: int | None) -> float | None:
    return None if at is None else at / _NS
