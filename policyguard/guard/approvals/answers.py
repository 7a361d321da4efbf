"""People's answers to calls that wait: a no, and what the model reads of an answer."""

from __future__ import annotations

from typing import TYPE_CHECKING

from policyguard.evaluator.evaluator import Evaluator
from policyguard.evaluator.session_state import SessionState
from policyguard.model.decision import Decision
from policyguard.model.effect import Effect
from policyguard.model.event import Denied
from policyguard.model.text import sanitize

if TYPE_CHECKING:
    from policyguard.guard.sessions.lifetime import Times

_MAX_MESSAGE_CHARS = 240
_MAX_NAME_CHARS = 80


def build_denial(
    evaluator: Evaluator,
    state: SessionState,
    decision: Decision,
    by: str,
    labels: tuple[str, ...],
    message: str,
    times: Times,
) -> Denied | None:
    """Return the event of a no; None if the call does not wait, or a label is missing."""
    approvals, fingerprint = state.approvals, decision.fingerprint
    if fingerprint not in approvals.requests:
        return None
    known, at = evaluator.approval_requirements, times["at"]
    needed = [
        known[one.id] for one in decision.violations if one.effect is Effect.ASK and one.id in known
    ]
    if any(one.labels and one.labels.isdisjoint(labels) for one in needed):
        return None
    within = min((one.within for one in needed), default=None)
    if within is not None and approvals.is_expired(fingerprint, within, at):
        return None
    return Denied(
        state.id,
        call=decision.id,
        fingerprint=fingerprint,
        by=by,
        labels=labels,
        message=sanitize(message)[:_MAX_MESSAGE_CHARS],
        expires_at=None if within is None else at + within,
        **times,
    )


def describe_approval(tool: str, by: str) -> str:
    """Return what the model reads of a yes to a call of a tool."""
    return f"{_show_call(tool)} is approved by {sanitize(by)}: make the same call again"


def describe_denial(tool: str, denied: Denied) -> str:
    """Return what the model reads of a no to a call of a tool."""
    word = f": {denied.message}" if denied.message else "; do without it"
    return f"{_show_call(tool)} was denied by {sanitize(denied.by)}{word}"


def _show_call(tool: str) -> str:
    return f"`{sanitize(tool)[:_MAX_NAME_CHARS]}`, which waited for an approval,"
