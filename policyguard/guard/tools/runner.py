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
from types import AsyncGeneratorType, CoroutineType, GeneratorType
from typing import TYPE_CHECKING, Any, TypeVar, Unpack, cast

from policyguard.engines.operating_system import after_fork_in_child
from policyguard.evaluator.attempt import Attempt
from policyguard.evaluator.evaluator import OPAQUE
from policyguard.guard import validate
from policyguard.guard.calls.decisions import refuse_changed
from policyguard.guard.calls.options import CallOptions
from policyguard.guard.calls.result_editing import edit_ended
from policyguard.guard.clock import elapsed_time
from policyguard.guard.event_loop import run_blocking, run_later
from policyguard.guard.host_log import warn
from policyguard.guard.tools.background_tasks import (
    cancel_task,
    finishes_within,
    get_exception,
    run_in_task,
    run_in_thread,
)
from policyguard.guard.tools.results import ToolResult, error_text, parse_result
from policyguard.journal.errors import JournalError
from policyguard.model.decision import Decision
from policyguard.model.errors import CallRefused, PolicyguardError, RedactedError, ToolTimeoutError
from policyguard.model.event import CallEnded, Completed
from policyguard.model.outcome import Recorded
from policyguard.store.errors import StoreError

if TYPE_CHECKING:
    from policyguard.guard.guard import Guard
    from policyguard.guard.session import Session

R = TypeVar("R")


AnyFuture = futures.Future[R] | asyncio.Future[R]

_UNSTARTED = (CoroutineType, GeneratorType, AsyncGeneratorType)
"""Types of results whose work has not been done."""


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
    running = _RunningCall(session, decision, cost, tokens)
    if is_unchanged is not None:
        fn = running.compare_first(fn, is_unchanged)
    if running.timeout is not None:
        fn = _run_in_time(running, running.timeout, fn).result
    try:
        result = fn()
    except BaseException as error:
        redacted = running.report_error(error)
        if redacted is None:
            raise
    else:
        return running.finish(result)
    raise redacted  # out here it does not carry the error itself as its context


def _run_in_time(call: _RunningCall, timeout: float, fn: Callable[[], R]) -> futures.Future[R]:
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
    running = _RunningCall(session, decision, cost, tokens)
    if is_unchanged is not None:
        fn = running.acompare_first(fn, is_unchanged)
    try:
        awaitable = fn()
        is_awaitable = inspect.isawaitable(awaitable)
        if is_awaitable and running.timeout is None:
            result = await awaitable
        redacted = None
    except BaseException as error:
        redacted = await running.areport_error(error)
        if redacted is None:
            raise
    if redacted is not None:
        raise redacted
    if not is_awaitable:
        misuse = partial(running.report_misuse, "returned nothing that can be awaited; use `run`")
        raise await run_blocking(session.guard, misuse)
    if running.timeout is not None:
        result = await _await_in_time(running, running.timeout, awaitable)
    return await run_blocking(session.guard, partial(running.finish, result))


async def _await_in_time(call: _RunningCall, timeout: float, awaitable: Awaitable[R]) -> R:
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


class _RunningCall:
    """An admitted call that runs. A refused one raises `CallRefused`.

    It is never taken for unreported, nor are its slots freed, until its end is reported.
    """

    __slots__ = (
        *("_attempt", "_decision", "_refusal", "_session", "_started_at", "_usage"),
        *("id", "timeout"),
    )

    def __init__(
        self, session: Session, decision: Decision, cost: float | None, tokens: int | None
    ) -> None:
        if not decision.allowed:
            raise CallRefused(decision)
        self._session = session
        self._attempt = session._pipeline.hold(decision.id)
        if self._attempt is not None:
            _held.add(self._attempt)
        self._decision = decision
        self._refusal: CallRefused | None = None
        self._usage: dict[str, Any] = {"cost": cost, "tokens": tokens}
        self._started_at = elapsed_time()
        self.id = decision.id
        self.timeout = decision.timeout

    @property
    def guard(self) -> Guard:
        """The guard of its session."""
        return self._session.guard

    def elapsed(self) -> float:
        """Return the seconds since the call began."""
        return (elapsed_time() - self._started_at) / 1e9

    def compare_first(
        self, fn: Callable[[], R], is_unchanged: Callable[[], bool]
    ) -> Callable[[], R]:
        """Return a function that calls `fn`, or raises `CallRefused` if arguments have changed."""

        def begin() -> R:
            self._require(is_unchanged)
            return fn()

        return begin

    def acompare_first(
        self, fn: Callable[[], Awaitable[R]], is_unchanged: Callable[[], bool]
    ) -> Callable[[], Awaitable[R]]:
        """Do the same as `compare_first` for an async `fn`."""

        async def begin() -> R:
            self._require(is_unchanged)
            return await fn()

        return begin

    def _require(self, is_unchanged: Callable[[], bool]) -> None:
        if not is_unchanged():
            self._refusal = CallRefused(refuse_changed(self._decision))
            raise self._refusal

    def finish(self, result: R) -> R:
        """Report a result, and return it with the advice that it is to carry."""
        if isinstance(result, _UNSTARTED):
            raise self._reject_unstarted(result)
        recorded = self._record(result=result, **self._usage)
        outcome = recorded.outcome
        if isinstance(result, str):
            if recorded.advice or outcome.payload is not None or outcome.report.edited:
                return cast("R", recorded.text)  # text for text: the type stays what it was
            return result
        return result if recorded.value is None else cast("R", recorded.result)

    def _reject_unstarted(self, result: object) -> TypeError:
        if isinstance(result, CoroutineType):
            result.close()
            return self.report_misuse("returned a coroutine, which has not run; use `arun`")
        return self.report_misuse(
            "returned a generator, which has not run; return all that it yields"
        )

    def report_misuse(self, problem: str) -> TypeError:
        """Report a function that cannot be run so: the harness is to blame."""
        error = TypeError(f"`{self._decision.tool}` {problem}")
        self._record(error=error, blame="harness")
        return error

    def report_timeout(self) -> ToolTimeoutError:
        """Report that the call has timed out, and may still be running."""
        error = ToolTimeoutError(self._decision)
        failed = Completed(
            session=self._session.id,
            **self._session._times(),
            call=self.id,
            ok=False,
            error=str(error),
            duration=self.elapsed(),
            **self._usage,
            timeout_by=self._decision.timeout_by,
            still_running=True,
        )
        self._log_errors(self._session._pipeline.complete(failed))
        return error

    def report_end(self, future: AnyFuture[Any]) -> None:
        """Report the end of a call that has timed out, as an event."""
        error = get_exception(future)
        session = self._session
        harness = session.guard._evaluator.outcome_classifier.harness_keys
        result = (
            parse_result(future.result(), harness) if error is None else ToolResult("", failed=True)
        )
        event = CallEnded(
            session=session.id,
            **session._times(),
            call=self.id,
            ok=None if result.pending else not result.failed,
            text=result.text,
            error=None if error is None else error_text(error),
            duration=self.elapsed(),
        )
        with session.guard._lock:
            if not session.closed:  # its id may belong to another life by now
                evaluator, mode = session.guard._evaluator, session.guard._mode
                event = edit_ended(evaluator, self._attempt, event, observe=mode.observe)
                session._pipeline.fold(event)
            self._end_hold()

    def report(self, future: AnyFuture[Any]) -> None:
        """Report the end of a call whose caller no longer waits, as that of any other call."""
        if isinstance(future, futures.Future) and future.cancelled():
            self._release()  # no thread could be started
            return
        error = get_exception(future)
        if error is not None:
            self.report_error(error)
        else:
            self._record(result=future.result(), **self._usage)

    async def areport_error(self, error: BaseException) -> RedactedError | None:
        """Report as `report_error` does, off the event loop if that may block it."""
        if isinstance(error, GeneratorExit):  # nothing can be awaited any more
            return self.report_error(error)
        return await run_blocking(self.guard, partial(self.report_error, error))

    def report_error(self, error: BaseException) -> RedactedError | None:
        """Report what was raised, which is raised all the same, or else what is to be raised.

        A call that was cancelled, or whose program is being stopped, counts as cancelled. One that
        was refused since its arguments have changed is released.
        """
        if error is self._refusal:
            self._release()
            return None
        try:
            recorded = self._record(error=error, **self._usage)
        except PolicyguardError as failure:
            text = f"the end of `{self._decision.tool}` ({self.id}) is not recorded: {failure}"
            error.add_note(f"policyguard: {text}")
            warn(text)
            return None
        is_edited = recorded.outcome.report.edited and isinstance(error, Exception)
        return RedactedError(recorded) if is_edited else None

    def _release(self) -> None:
        """Release the call: its function never began."""
        self._end_hold()
        try:
            self._session.release(self._decision)
        except (JournalError, StoreError) as failure:
            warn(f"the release of `{self._decision.tool}` ({self.id}) failed: {failure}")

    def _record(self, **reported: Any) -> Recorded:
        """Report the result of the call."""
        reported["duration"] = self.elapsed()
        try:
            return self._log_errors(self._session.record(self._decision, **reported))
        finally:
            self._end_hold()

    def _end_hold(self) -> None:
        """Note that the call has ended: if that could not be counted, it is now unreported."""
        if self._attempt is not None:
            self._attempt.is_held = False
            _held.discard(self._attempt)

    def _log_errors(self, recorded: Recorded) -> Recorded:
        """Log the errors of a report: the host gets the tool's result only."""
        for error in recorded.errors:
            warn(f"`{self._decision.tool}` ({self.id}), {error.id}: {error.error}")
        return recorded


_held: set[Attempt] = set()
"""The calls that this process runs."""


def _after_fork() -> None:
    """Give up the parent's calls, which run there."""
    for attempt in _held:
        attempt.is_held = False
    _held.clear()


after_fork_in_child(_after_fork)
