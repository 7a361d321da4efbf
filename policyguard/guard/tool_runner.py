"""Running a tool under a session: check, run, record in one step, in the time that it has.

A call that runs out of its time has failed, whatever it does next. What still runs then ends
without its caller; that it has, and how, is an event of its own, and counts nowhere.
"""

from __future__ import annotations

import asyncio
import inspect
import time
from collections.abc import Awaitable, Callable, Mapping
from concurrent import futures
from types import AsyncGeneratorType, CoroutineType, GeneratorType, TracebackType
from typing import TYPE_CHECKING, Any, TypeVar, cast

from policyguard.guard import validate
from policyguard.guard.background_tasks import (
    cancel_task,
    finishes_within,
    get_exception,
    run_in_task,
    run_in_thread,
)
from policyguard.guard.host_log import warn
from policyguard.guard.tool_results import ToolResult, error_text, parse_result
from policyguard.journal.errors import JournalError
from policyguard.model.errors import CallRefused, ToolTimeoutError
from policyguard.model.event import Completed, Ended
from policyguard.model.outcome import Recorded
from policyguard.store.errors import StoreError

if TYPE_CHECKING:
    from policyguard.guard.session import Session

R = TypeVar("R")
AnyFuture = futures.Future[R] | asyncio.Future[R]

_UNSTARTED = (CoroutineType, GeneratorType, AsyncGeneratorType)
"""Results that are work still to be done."""


def run(session: Session, tool: str, args: Mapping[str, Any] | None, fn: Callable[[], R]) -> R:
    """Check, run `fn`, record. See `Session.run`."""
    validate.function("fn", fn)
    call = _RunningCall(session, tool, args)
    if call.timeout is None:
        with call:
            result = fn()
        return call.finish(result)
    over: futures.Future[R] = futures.Future()
    try:
        run_in_thread(fn, over, f"policyguard {call.id}")
        in_time = finishes_within(over, call.timeout - call.elapsed())
    except BaseException:  # the caller was interrupted: the call goes on, or could not begin
        over.add_done_callback(call.report)
        raise
    if not in_time:
        error = call.report_timeout()
        over.add_done_callback(call.report_end)
        raise error
    with call:
        result = over.result()
    return call.finish(result)


async def arun(
    session: Session, tool: str, args: Mapping[str, Any] | None, fn: Callable[[], Awaitable[R]]
) -> R:
    """Check, await `fn`, record. See `Session.arun`."""
    validate.function("fn", fn)
    call = _RunningCall(session, tool, args)
    with call:
        awaitable = fn()
    if not inspect.isawaitable(awaitable):
        raise call.report_misuse("gave nothing that can be awaited: use `run`")
    if call.timeout is None:
        with call:
            result = await awaitable
        return call.finish(result)
    task = run_in_task(awaitable)
    patience = session.guard._evaluator.bounds.cleanup / 1e9
    try:
        await asyncio.wait((task,), timeout=call.timeout - call.elapsed())
    except asyncio.CancelledError:  # the caller is cancelled, and the call with it
        task.add_done_callback(call.report)
        await cancel_task(task, patience)
        raise
    if not task.done():
        error = call.report_timeout()
        task.add_done_callback(call.report_end)
        await cancel_task(task, patience)
        raise error
    with call:
        result = task.result()
    return call.finish(result)


class _RunningCall:
    """An admitted call, until what came of it is reported. A refused one raises `CallRefused`.

    As a context manager it reports what is raised inside.
    """

    __slots__ = ("_decision", "_session", "_started_at", "id", "timeout")

    def __init__(self, session: Session, tool: str, args: Mapping[str, Any] | None) -> None:
        decision = session.check(tool, args)
        if not decision.allowed:
            raise CallRefused(decision)
        self._session = session
        self._decision = decision
        self._started_at = time.monotonic()
        self.id = decision.id
        self.timeout = decision.timeout

    def elapsed(self) -> float:
        """Seconds since the call began."""
        return time.monotonic() - self._started_at

    def __enter__(self) -> None:
        pass

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is not None:
            self._report_error(error)

    def finish(self, result: R) -> R:
        """Report a result, and give it back: if it is text, as the model is to see it."""
        if isinstance(result, _UNSTARTED):
            raise self._reject_unstarted(result)
        recorded = self._record(result=result)
        if isinstance(result, str) and (recorded.advice or recorded.outcome.payload is not None):
            return cast("R", recorded.text)  # text for text: the type stays what it was
        return result

    def _reject_unstarted(self, result: object) -> TypeError:
        if isinstance(result, CoroutineType):
            result.close()
            return self.report_misuse("gave a coroutine, which has not run: use `arun`")
        return self.report_misuse("gave a generator, which has not run: give all that it yields")

    def report_misuse(self, problem: str) -> TypeError:
        """Report a function that does not fit how it is run: it is the program's fault."""
        error = TypeError(f"`{self._decision.tool}` {problem}")
        self._record(error=error, blame="harness")
        return error

    def report_timeout(self) -> ToolTimeoutError:
        """Report that the call has used up its time, and goes on."""
        error = ToolTimeoutError(self._decision)
        failed = Completed(
            session=self._session.id,
            at=self._session.guard._clock(),
            call=self.id,
            ok=False,
            error=str(error),
            duration=self.elapsed(),
            timeout_by=self._decision.timeout_by,
            still_running=True,
        )
        self._log_faults(self._session._pipeline.complete(failed))
        return error

    def report_end(self, future: AnyFuture[Any]) -> None:
        """Tell that a call that had run out of time is over: an event, no result."""
        error = get_exception(future)
        session = self._session
        harness = session.guard._evaluator.outcome_classifier.harness_keys
        result = (
            parse_result(future.result(), harness) if error is None else ToolResult("", failed=True)
        )
        event = Ended(
            session=session.id,
            at=session.guard._clock(),
            call=self.id,
            ok=None if result.pending else not result.failed,
            text=result.text,
            error=None if error is None else error_text(error),
            duration=self.elapsed(),
        )
        with session.guard._lock:
            if not session.closed:  # its id may be another session's by now
                session._pipeline.fold(event)

    def report(self, future: AnyFuture[Any]) -> None:
        """Report what came of a call that its caller did not wait for."""
        error = get_exception(future)
        if error is not None:
            self._report_error(error)
        else:
            self._record(result=future.result())

    def _report_error(self, error: BaseException) -> None:
        if isinstance(error, Exception):
            self._record(error=error)
        else:  # cancelled, or the program is being stopped: nothing to learn from
            self._release(error)

    def _release(self, error: BaseException) -> None:
        """Take the call back. Whoever is being stopped is: `error` comes out, whatever fails."""
        try:
            self._session.release(self.id)
        except (JournalError, StoreError) as failure:
            text = f"the release of `{self._decision.tool}` ({self.id}) failed: {failure}"
            error.add_note(f"policyguard: {text}")
            warn(text)

    def _record(self, **reported: Any) -> Recorded:
        """Report what came of the call."""
        return self._log_faults(self._session.record(self.id, duration=self.elapsed(), **reported))

    def _log_faults(self, recorded: Recorded) -> Recorded:
        """What went wrong with the report is the host's to know, who sees the result alone."""
        for fault in recorded.errors:
            warn(f"`{self._decision.tool}` ({self.id}), {fault.id}: {fault.error}")
        return recorded
