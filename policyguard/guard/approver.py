"""Who is asked where a call is answered with *ask*: a function of the host's."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import msgspec

from policyguard.evaluator.evaluator import Evaluator
from policyguard.evaluator.session_state import SessionState
from policyguard.guard.host_log import log_failure
from policyguard.guard.tool_decorator import is_async
from policyguard.guard.tool_results import error_text
from policyguard.model.decision import Decision, EvalError
from policyguard.model.effect import Effect

if TYPE_CHECKING:
    from policyguard.guard.session import Session

Approver = Callable[["Session", Decision], object]
"""Takes the session and the decision. It says yes with `session.approve`; what it returns is no
answer."""


def check_approver(approver: Any) -> None:
    """`TypeError` for what cannot be an approver: nobody would await one that is async."""
    if not callable(approver):
        raise TypeError(f"`approver` is a function, not {approver!r:.40}")
    if is_async(approver):
        raise TypeError(
            "`approver` is async, and `check` awaits nothing: give a plain function, which may "
            "see to it that `session.approve` is called later"
        )


def is_approved(evaluator: Evaluator, state: SessionState, decision: Decision, at: int) -> bool:
    """Whether by now, at `at` (ns), enough has been said to what asked about a call."""
    return all(
        evaluator.is_waived(state, decision.fingerprint, one, at)
        for one in decision.violations
        if one.effect is Effect.ASK
    )


def ask(approver: Approver, session: Session, decision: Decision) -> Decision:
    """Ask about a call. Where the approver fails, its error stands in `errors`, and is logged."""
    try:
        approver(session, decision)
    except Exception as error:  # noqa: BLE001 - whatever a stranger's function raises
        log_failure(f"the approver failed on {decision.id}")
        fault = EvalError("approver", error_text(error))
        return msgspec.structs.replace(decision, errors=(*decision.errors, fault))
    return decision
