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

from policyguard.guard import given
from policyguard.guard.deadline import ends_within, error_of, in_task, in_thread, stop
from policyguard.guard.results import Given, read, told
from policyguard.guard.warning import warn
from policyguard.journal.errors import JournalError
from policyguard.model.errors import CallRefused, ToolTimeoutError
from policyguard.model.event import Completed, Ended
from policyguard.model.outcome import Recorded
from policyguard.store.errors import StoreError

if TYPE_CHECKING:
    from policyguard.guard.session import Session

R = TypeVar("R")
Running = futures.Future[R] | asyncio.Future[R]

_UNBEGUN = (CoroutineType, GeneratorType, AsyncGeneratorType)
"""Results that are work still to be done."""


def run(session: Session, tool: str, args: Mapping[str, Any] | None, fn: Callable[[], R]) -> R:
    """Check, run `fn`, record. See `Session.run`."""
    given.function("fn", fn)
    call = _Call(session, tool, args)
    if call.timeout is None:
        with call:
            result = fn()
        return call.done(result)
    over: futures.Future[R] = futures.Future()
    try:
        in_thread(fn, over, f"policyguard {call.id}")
        in_time = ends_within(over, call.timeout - call.took())
    except BaseException:  # the caller was interrupted: the call goes on, or could not begin
        over.add_done_callback(call.report)
        raise
    if not in_time:
        error = call.out_of_time()
        over.add_done_callback(call.ended)
        raise error
    with call:
        result = over.result()
    return call.done(result)


async def arun(
    session: Session, tool: str, args: Mapping[str, Any] | None, fn: Callable[[], Awaitable[R]]
) -> R:
    """Check, await `fn`, record. See `Session.arun`."""
    given.function("fn", fn)
    call = _Call(session, tool, args)
    with call:
        awaitable = fn()
    if not inspect.isawaitable(awaitable):
        raise call.misused("gave nothing that can be awaited: use `run`")
    if call.timeout is None:
        with call:
            result = await awaitable
        return call.done(result)
    task = in_task(awaitable)
    patience = session.guard.evaluator.bounds.cleanup / 1e9
    try:
        await asyncio.wait((task,), timeout=call.timeout - call.took())
    except asyncio.CancelledError:  # the caller is cancelled, and the call with it
        task.add_done_callback(call.report)
        await stop(task, patience)
        raise
    if not task.done():
        error = call.out_of_time()
        task.add_done_callback(call.ended)
        await stop(task, patience)
        raise error
    with call:
        result = task.result()
    return call.done(result)


class _Call:
    """An admitted call, until what came of it is reported. A refused one raises `CallRefused`.

    As a context manager it reports what is raised inside.
    """

    __slots__ = ("_begun", "_decision", "_session", "id", "timeout")

    def __init__(self, session: Session, tool: str, args: Mapping[str, Any] | None) -> None:
        decision = session.check(tool, args)
        if not decision.allowed:
            raise CallRefused(decision)
        self._session = session
        self._decision = decision
        self._begun = time.monotonic()
        self.id = decision.id
        self.timeout = decision.timeout

    def took(self) -> float:
        """Seconds since the call began."""
        return time.monotonic() - self._begun

    def __enter__(self) -> None:
        pass

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is not None:
            self._failed(error)

    def done(self, result: R) -> R:
        """Report a result, and give it back: if it is text, as the model is to see it."""
        if isinstance(result, _UNBEGUN):
            raise self._unbegun(result)
        recorded = self._record(result=result)
        if isinstance(result, str) and (recorded.advice or recorded.outcome.payload is not None):
            return cast("R", recorded.text)  # text for text: the type stays what it was
        return result

    def _unbegun(self, result: object) -> TypeError:
        if isinstance(result, CoroutineType):
            result.close()
            return self.misused("gave a coroutine, which has not run: use `arun`")
        return self.misused("gave a generator, which has not run: give all that it yields")

    def misused(self, what: str) -> TypeError:
        """Report a function that does not fit how it is run: it is the program's fault."""
        error = TypeError(f"`{self._decision.tool}` {what}")
        self._record(error=error, blame="harness")
        return error

    def out_of_time(self) -> ToolTimeoutError:
        """Report that the call has used up its time, and goes on."""
        error = ToolTimeoutError(self._decision)
        failed = Completed(
            session=self._session.id,
            at=self._session.guard.clock(),
            call=self.id,
            ok=False,
            error=str(error),
            duration=self.took(),
            timeout_by=self._decision.timeout_by,
            running=True,
        )
        self._told(cast("Recorded", self._session.replay(failed)))
        return error

    def ended(self, over: Running[Any]) -> None:
        """Tell that a call that had run out of time is over: an event, no result."""
        error = error_of(over)
        session = self._session
        harness = session.guard.evaluator.observer.harness
        result = read(over.result(), harness) if error is None else Given("", failed=True)
        event = Ended(
            session=session.id,
            at=session.guard.clock(),
            call=self.id,
            ok=None if result.pending else not result.failed,
            text=result.text,
            error=None if error is None else told(error),
            duration=self.took(),
        )
        with session.guard.lock:
            if not session.closed:  # its id may be another session's by now
                session.replay(event)

    def report(self, over: Running[Any]) -> None:
        """Report what came of a call that its caller did not wait for."""
        error = error_of(over)
        if error is not None:
            self._failed(error)
        else:
            self._record(result=over.result())

    def _failed(self, error: BaseException) -> None:
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

    def _record(self, **came: Any) -> Recorded:
        """Report what came of the call."""
        return self._told(self._session.record(self.id, duration=self.took(), **came))

    def _told(self, recorded: Recorded) -> Recorded:
        """What went wrong with the report is the host's to know, who sees the result alone."""
        for fault in recorded.errors:
            warn(f"`{self._decision.tool}` ({self.id}), {fault.id}: {fault.error}")
        return recorded
