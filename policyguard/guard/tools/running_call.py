"""An admitted call that runs: its end is reported once, however it ends."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from concurrent import futures
from functools import partial
from types import AsyncGeneratorType, CoroutineType, GeneratorType
from typing import TYPE_CHECKING, Any, TypeVar, cast

from policyguard.engines.operating_system import after_fork_in_child
from policyguard.evaluator.attempt import Attempt
from policyguard.guard.calls.decisions import refuse_changed
from policyguard.guard.calls.result_editing import edit_ended
from policyguard.guard.clock import elapsed_time
from policyguard.guard.event_loop import run_blocking
from policyguard.guard.host_log import warn
from policyguard.guard.tools.background_tasks import get_exception
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


class RunningCall:
    """An admitted call that runs. A refused one raises `CallRefused`.

    It is never taken for unreported, nor are its slots freed, until its end is reported. `recorded`
    is the answer to that report. `pauses` are exceptions by which a framework says that the call is
    to run later: it is released.
    """

    __slots__ = (
        *("_attempt", "_decision", "_pauses", "_refusal", "_session", "_started_at", "_usage"),
        *("id", "recorded", "timeout"),
    )

    def __init__(
        self,
        session: Session,
        decision: Decision,
        *,
        cost: float | None = None,
        tokens: int | None = None,
        pauses: tuple[type[BaseException], ...] = (),
    ) -> None:
        if not decision.allowed:
            raise CallRefused(decision)
        self._session = session
        self._attempt = session._pipeline.hold(decision.id)
        if self._attempt is not None:
            _held.add(self._attempt)
        self._decision = decision
        self._pauses = pauses
        self._refusal: CallRefused | None = None
        self.recorded: Recorded | None = None
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
        self._note(self._session._pipeline.complete(failed))
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
        was refused since its arguments have changed is released, as is one that pauses.
        """
        if error is self._refusal or isinstance(error, self._pauses):
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
            return self._note(self._session.record(self._decision, **reported))
        finally:
            self._end_hold()

    def _end_hold(self) -> None:
        """Note that the call has ended: if that could not be counted, it is now unreported."""
        if self._attempt is not None:
            self._attempt.is_held = False
            _held.discard(self._attempt)

    def _note(self, recorded: Recorded) -> Recorded:
        """Keep the answer to a report, and log its errors: the host gets the tool's result only."""
        self.recorded = recorded
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
