"""The host's function that is asked about calls whose effect is *ask*."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec

from policyguard.evaluator.evaluator import OPAQUE, Evaluator
from policyguard.evaluator.session_state import SessionState
from policyguard.guard.event_loop import is_async
from policyguard.guard.host_log import log_failure
from policyguard.guard.tools.results import error_text
from policyguard.model.decision import Decision, EvalError
from policyguard.model.effect import Effect

if TYPE_CHECKING:
    from policyguard.guard.session import Session

Approver = Callable[["Session", Decision], object | Awaitable[object]]
"""Takes the session and the decision, and approves with `session.approve`. What it returns is
ignored. An async one is awaited by `acheck`, `arun` and async tools."""


def check_approver(approver: Any) -> None:
    """Raise `TypeError` for what is not a function."""
    if not callable(approver):
        raise TypeError(f"`approver` is a function, not {approver!r:.40}")


def require_comparable(decision: Decision) -> None:
    """Raise `ValueError` for a call that equals no other: nothing could use its approval."""
    for error in decision.errors:
        if error.id == OPAQUE:
            raise ValueError(f"call `{decision.id}` cannot be approved: {error.error}")


def is_approved(evaluator: Evaluator, state: SessionState, decision: Decision, at: int) -> bool:
    """Whether everything that asked about a call is approved at `at` (ns)."""
    return all(
        state.approvals.is_approved(
            decision.fingerprint, evaluator.approval_requirements.get(violation.id), at
        )
        for violation in decision.violations
        if violation.effect is Effect.ASK
    )


def ask(approver: Approver, session: Session, decision: Decision) -> Decision:
    """Ask about a call. If the approver fails, its error is in `errors`, and logged."""
    try:
        if is_async(approver):
            raise TypeError("the approver is async: use `acheck`, `arun` or an async tool")
        answer = approver(session, decision)
        if inspect.iscoroutine(answer):
            answer.close()
            raise TypeError("the approver is async: use `acheck`, `arun` or an async tool")
    except Exception as error:  # noqa: BLE001 - the host's function may raise anything
        return _failed(decision, error)
    return decision


async def ask_async(approver: Approver, session: Session, decision: Decision) -> Decision:
    """Ask as `ask` does: an async approver is awaited, another runs in a thread of its own."""
    import asyncio
    from concurrent.futures import Future

    from policyguard.guard.tools.background_tasks import run_in_thread

    try:
        if is_async(approver):
            answer = approver(session, decision)
        else:
            future: Future[object] = Future()
            run_in_thread(
                partial(approver, session, decision), future, f"policyguard approver {decision.id}"
            )
            answer = await asyncio.shield(asyncio.wrap_future(future))
        if inspect.isawaitable(answer):
            await answer
    except Exception as error:  # noqa: BLE001 - the host's function may raise anything
        return _failed(decision, error)
    return decision


def _failed(decision: Decision, error: Exception) -> Decision:
    log_failure(f"the approver failed on {decision.id}")
    eval_error = EvalError("approver", error_text(error))
    return msgspec.structs.replace(decision, errors=(*decision.errors, eval_error))
