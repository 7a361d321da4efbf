"""Sessions under asyncio: what may wait for a disk or a person runs off the event loop.

asyncio is imported where it is used: a check without an event loop does not need it.
"""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Callable
from contextvars import ContextVar, copy_context
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from policyguard.engines.operating_system import after_fork_in_child
from policyguard.guard.host_log import log_failure

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop
    from concurrent.futures import Future, ThreadPoolExecutor

R = TypeVar("R")


class _MayBlock(Protocol):
    """A guard: with a store, its calls may block."""

    _may_block: bool


_THREADS = 4
"""Worker threads; a guard's lock lets one of its calls run at a time."""

_executor: ThreadPoolExecutor | None = None
_caller_loop: ContextVar[AbstractEventLoop | None] = ContextVar("policyguard_loop", default=None)
"""In a worker thread, the event loop that waits for it."""


def running_loop() -> AbstractEventLoop | None:
    """Return the event loop that runs in this thread, or that waits for this worker thread."""
    asyncio = sys.modules.get("asyncio")
    if asyncio is None:
        return None
    try:
        loop: AbstractEventLoop = asyncio.get_running_loop()
    except RuntimeError:
        return _caller_loop.get()
    return loop


def is_async(fn: Callable[..., Any]) -> bool:
    """Whether a function is defined as async."""
    inner = unwrap_partial(fn)
    return inspect.iscoroutinefunction(inner) or inspect.iscoroutinefunction(type(inner).__call__)


def unwrap_partial(fn: Callable[..., Any]) -> Callable[..., Any]:
    """Return the function that a `functools.partial` calls."""
    while isinstance(fn, functools.partial):
        fn = fn.func
    return fn


async def run_blocking(
    guard: _MayBlock, fn: Callable[[], R], undo: Callable[[R], object] | None = None
) -> R:
    """Call `fn`: at once if the guard keeps everything in memory, else in a worker thread.

    If the caller is cancelled meanwhile, `fn` runs to its end, and `undo` is called with its
    result.
    """
    if not guard._may_block:
        return fn()
    import asyncio

    context = copy_context()
    context.run(_caller_loop.set, asyncio.get_running_loop())
    future = _get_executor().submit(context.run, fn)
    try:
        return await asyncio.shield(asyncio.wrap_future(future))
    except asyncio.CancelledError:
        if undo is not None:
            future.add_done_callback(functools.partial(_undo, undo))
        raise


def run_later(guard: _MayBlock, fn: Callable[[], object]) -> None:
    """Call `fn` at once, or in a worker thread; its errors are logged."""
    if guard._may_block:
        _get_executor().submit(_log_errors, fn)
    else:
        _log_errors(fn)


def _undo(undo: Callable[[Any], object], future: Future[Any]) -> None:
    if future.exception() is None:
        _log_errors(functools.partial(undo, future.result()))


def _log_errors(fn: Callable[[], object]) -> None:
    try:
        fn()
    except Exception:  # noqa: BLE001 - its caller is gone
        log_failure("a report in the background failed")


def _get_executor() -> ThreadPoolExecutor:
    global _executor
    if _executor is None:
        from concurrent.futures import ThreadPoolExecutor  # which imports logging

        _executor = ThreadPoolExecutor(_THREADS, thread_name_prefix="policyguard")
    return _executor


def _after_fork() -> None:
    global _executor
    _executor = None  # its threads are the parent's


after_fork_in_child(_after_fork)
