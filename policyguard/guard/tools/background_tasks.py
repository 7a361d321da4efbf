"""Functions that run in a thread or task of their own, whose caller may stop waiting.

A thread cannot be stopped; a task can be cancelled, and may ignore it. Both are futures: a done
callback reports their end to a caller that no longer waits.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from concurrent import futures
from contextvars import copy_context
from typing import Any, TypeVar

R = TypeVar("R")

_tasks: set[asyncio.Future[Any]] = set()
"""Event loops hold tasks weakly: without this, one that is never awaited could vanish."""


def run_in_thread(fn: Callable[[], R], future: futures.Future[R], name: str) -> None:
    """Run `fn` in a thread of its own, with a copy of the caller's context variables.

    Its result goes to `future`. The thread is a daemon: the process may end while it runs.
    Raises what keeps a thread from being started; then `future` is cancelled.
    """
    context = copy_context()

    def work() -> None:
        try:
            result = context.run(fn)
        except BaseException as error:  # noqa: BLE001 - the caller gets it
            future.set_exception(error)
        else:
            future.set_result(result)

    try:
        threading.Thread(target=work, name=name, daemon=True).start()
    except Exception:  # raised again: the caller must know that nothing has begun
        future.cancel()
        raise


def finishes_within(future: futures.Future[R], seconds: float) -> bool:
    """Wait for at most `seconds`. Returns whether the future is done."""
    futures.wait((future,), min(seconds, threading.TIMEOUT_MAX))
    return future.done()


def run_in_task(awaitable: Awaitable[R]) -> asyncio.Future[R]:
    """Await in a task of its own, with a copy of the caller's context variables."""
    task = asyncio.ensure_future(awaitable)
    _tasks.add(task)
    task.add_done_callback(_tasks.discard)
    return task


async def cancel_task(task: asyncio.Future[R], grace_period: float) -> None:
    """Cancel a task and give it `grace_period` seconds to clean up; then leave it alone."""
    task.cancel()
    await asyncio.wait((task,), timeout=grace_period)


def get_exception(future: futures.Future[R] | asyncio.Future[R]) -> BaseException | None:
    """Return the exception of a future that is done, None if it has a result."""
    return asyncio.CancelledError() if future.cancelled() else future.exception()
