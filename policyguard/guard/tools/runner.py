"""Runs tools under a session: check, run and record in one step, within the call's timeout.

A call that times out has failed, whatever it does next. If it goes on, a `CallEnded` event reports
its end, which counts nowhere. A call that is stopped from outside after its function was called is
recorded as cancelled; only one whose function never began is released.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Mapping
from concurrent import futures
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar, Unpack

from policyguard.evaluator.evaluator import OPAQUE
from policyguard.guard import validate
from policyguard.guard.event_loop import run_blocking, run_later
from policyguard.guard.host_log import warn
from policyguard.guard.tools.background_tasks import (
    cancel_task,
    finishes_within,
    run_in_task,
    run_in_thread,
)
from policyguard.guard.tools.running_call import RunningCall
from policyguard.model.decision import Decision

if TYPE_CHECKING:
    from policyguard.guard.calls.options import CallOptions
    from policyguard.guard.guard import Guard
    from policyguard.guard.session import Session

R = TypeVar("R")


def run(
    session: Session,
    tool: str,
    args: Mapping[str, Any] | None,
    fn: Callable[[], R],
    is_unchanged: Callable[[], bool] | None = None,
    *,
    cost: float | None = None,
    tokens: int | None = None,
    **call: Unpack[CallOptions],
) -> R:
    """Check, run `fn`, record. See `Session.run`.

    `is_unchanged` says, right before `fn` runs, whether the arguments are still those checked. If
    not, the call is refused.
    """
    validate.function("fn", fn)
    decision = session.check(tool, args, **call)
    if decision.errors:
        _warn_opaque(session.guard, decision)
    running = RunningCall(session, decision, cost=cost, tokens=tokens)
    if is_unchanged is not None:
        fn = running.compare_first(fn, is_unchanged)
    return run_admitted(running, fn)


def run_admitted(call: RunningCall, fn: Callable[[], R]) -> R:
    """Run `fn` in the time that the call has, and record its end. See `Session.run`."""
    if call.timeout is not None:
        fn = _run_in_time(call, call.timeout, fn).result
    try:
        result = fn()
    except BaseException as error:
        redacted = call.report_error(error)
        if redacted is None:
            raise
    else:
        return call.finish(result)
    raise redacted  # out here it does not carry the error itself as its context


def _run_in_time(call: RunningCall, timeout: float, fn: Callable[[], R]) -> futures.Future[R]:
    """Run in a thread of its own; return when it is done. Raise when the time is over."""
    future: futures.Future[R] = futures.Future()
    try:
        run_in_thread(fn, future, f"policyguard {call.id}")
        in_time = finishes_within(future, timeout - call.elapsed())
    except BaseException:  # the caller was interrupted: the call goes on, or could not begin
        future.add_done_callback(call.report)
        raise
    if not in_time:
        timed_out = call.report_timeout()
        future.add_done_callback(call.report_end)
        raise timed_out
    return future


async def arun(
    session: Session,
    tool: str,
    args: Mapping[str, Any] | None,
    fn: Callable[[], Awaitable[R]],
    is_unchanged: Callable[[], bool] | None = None,
    *,
    cost: float | None = None,
    tokens: int | None = None,
    **call: Unpack[CallOptions],
) -> R:
    """Check, await `fn`, record. See `Session.arun`, and `run` for `is_unchanged`."""
    validate.function("fn", fn)
    decision = await session.acheck(tool, args, **call)
    if decision.errors:
        _warn_opaque(session.guard, decision)
    running = RunningCall(session, decision, cost=cost, tokens=tokens)
    if is_unchanged is not None:
        fn = running.acompare_first(fn, is_unchanged)
    return await arun_admitted(running, fn)


async def arun_admitted(call: RunningCall, fn: Callable[[], Awaitable[R]]) -> R:
    """Do the same as `run_admitted` with an async `fn`. See `Session.arun`."""
    try:
        awaitable = fn()
        is_awaitable = inspect.isawaitable(awaitable)
        if is_awaitable and call.timeout is None:
            result = await awaitable
        redacted = None
    except BaseException as error:
        redacted = await call.areport_error(error)
        if redacted is None:
            raise
    if redacted is not None:
        raise redacted
    if not is_awaitable:
        misuse = partial(call.report_misuse, "returned nothing that can be awaited; use `run`")
        raise await run_blocking(call.guard, misuse)
    if call.timeout is not None:
        result = await _await_in_time(call, call.timeout, awaitable)
    return await run_blocking(call.guard, partial(call.finish, result))


async def _await_in_time(call: RunningCall, timeout: float, awaitable: Awaitable[R]) -> R:
    """Await in a task of its own, which is cancelled when the time is over."""
    task, guard = run_in_task(awaitable), call.guard
    grace_period = guard._evaluator.bounds.cleanup / 1e9
    try:
        await asyncio.wait((task,), timeout=timeout - call.elapsed())
    except BaseException as error:  # the caller is cancelled, and the call with it
        task.add_done_callback(lambda task: run_later(guard, partial(call.report, task)))
        if isinstance(error, GeneratorExit):  # nothing can be awaited any more
            try:
                task.cancel()
            except RuntimeError:  # its loop is closed
                call.report_error(error)
        else:
            await cancel_task(task, grace_period)
        raise
    if not task.done():
        try:
            timed_out = await run_blocking(guard, call.report_timeout)
        finally:
            task.add_done_callback(lambda task: run_later(guard, partial(call.report_end, task)))
            await cancel_task(task, grace_period)
        raise timed_out
    try:
        return task.result()
    except BaseException as error:
        redacted = await call.areport_error(error)
        if redacted is None:
            raise
    raise redacted


def _warn_opaque(guard: Guard, decision: Decision) -> None:
    """Log, once for each tool, that its calls cannot be compared: they are called by functions."""
    warned = guard._tools.warned
    for error in decision.errors:
        if error.id == OPAQUE and decision.tool not in warned:
            if len(warned) >= guard._evaluator.bounds.plans:
                warned.clear()
            warned.add(decision.tool)
            warn(f"`{decision.tool}`: {error.error}")
