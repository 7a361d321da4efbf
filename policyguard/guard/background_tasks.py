"""A function that runs beside its caller, so that the caller need not wait for its end.

A thread cannot be stopped; a task can be asked to stop, and need not obey. Both are futures here:
who does not wait any longer can still be told how they ended (`add_done_callback`).
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
"""An event loop holds its tasks weakly: one that nobody waits for could vanish."""


def run_in_thread(fn: Callable[[], R], future: futures.Future[R], name: str) -> None:
    """Run `fn` in a thread of its own, with a copy of the caller's context variables.

    `over` gets what comes of it. The thread is a daemon: the process may end while it runs.
    `RuntimeError` where the system gives no more threads; then `over` is cancelled.
    """
    context = copy_context()

    def work() -> None:
        try:
            result = context.run(fn)
        except BaseException as error:  # noqa: BLE001 - whatever it is, it is the caller's
            future.set_exception(error)
        else:
            future.set_result(result)

    try:
        threading.Thread(target=work, name=name, daemon=True).start()
    except RuntimeError:
        future.cancel()
        raise


def finishes_within(future: futures.Future[R], seconds: float) -> bool:
    """Wait for a thread to end, for so long at most. Returns whether it has."""
    futures.wait((future,), min(seconds, threading.TIMEOUT_MAX))
    return future.done()


def run_in_task(awaitable: Awaitable[R]) -> asyncio.Future[R]:
    """Await in a task of its own, with a copy of the caller's context variables."""
    task = asyncio.ensure_future(awaitable)
    _tasks.add(task)
    task.add_done_callback(_tasks.discard)
    return task


async def cancel_task(task: asyncio.Future[R], grace_period: float) -> None:
    """Cancel a task and let it clean up for `patience` seconds; then it is left to itself."""
    task.cancel()
    await asyncio.wait((task,), timeout=grace_period)


def get_exception(future: futures.Future[R] | asyncio.Future[R]) -> BaseException | None:
    """What has been raised by what has ended; None where it gave a result."""
    return asyncio.CancelledError() if future.cancelled() else future.exception()
