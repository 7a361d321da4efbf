"""Running a tool under a session: check, run, record in one step."""

from __future__ import annotations

import asyncio
import functools
import inspect
import time
from collections.abc import Awaitable, Callable, Mapping
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar, cast

from policyguard.model.decision import Decision
from policyguard.model.errors import CallRefused

if TYPE_CHECKING:
    from policyguard.guard.guard import Guard
    from policyguard.guard.session import Session

P = ParamSpec("P")
R = TypeVar("R")

current: ContextVar[Session | None] = ContextVar("policyguard_session", default=None)
"""The session of the surrounding `with guard.session(...):`."""


def run(session: Session, tool: str, args: Mapping[str, Any] | None, fn: Callable[[], R]) -> R:
    """Check, run `fn`, record. See `Session.run`."""
    decision = _admitted(session, tool, args)
    begun = time.monotonic()
    try:
        result = fn()
    except Exception as error:
        session.record(decision, error=error, duration=time.monotonic() - begun)
        raise
    except BaseException:  # the program is being stopped: the call has no outcome to learn from
        session.release(decision)
        raise
    return _recorded(session, decision, result, begun)


async def arun(
    session: Session, tool: str, args: Mapping[str, Any] | None, fn: Callable[[], Awaitable[R]]
) -> R:
    """Check, await `fn`, record. See `Session.arun`."""
    decision = _admitted(session, tool, args)
    begun = time.monotonic()
    try:
        result = await fn()
    except asyncio.CancelledError:
        session.release(decision)
        raise
    except Exception as error:
        session.record(decision, error=error, duration=time.monotonic() - begun)
        raise
    except BaseException:
        session.release(decision)
        raise
    return _recorded(session, decision, result, begun)


def guarded(guard: Guard, fn: Callable[P, R]) -> Callable[P, R]:
    """Wrap a function so that each call goes through the current session. See `Guard.tool`."""
    signature = inspect.signature(fn)
    name = fn.__name__

    def bind(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Session, dict[str, Any]]:
        session = current.get()
        if session is None or session.guard is not guard:
            raise RuntimeError(
                f"`{name}` was called outside a session of its guard; "
                "put `with guard.session(...):` around the agent's run"
            )
        return session, dict(signature.bind(*args, **kwargs).arguments)

    if inspect.iscoroutinefunction(fn):

        @functools.wraps(fn)
        async def guarded_async(*args: P.args, **kwargs: P.kwargs) -> Any:
            session, named = bind(args, kwargs)
            return await arun(session, name, named, lambda: fn(*args, **kwargs))

        return cast("Callable[P, R]", guarded_async)

    @functools.wraps(fn)
    def guarded_plain(*args: P.args, **kwargs: P.kwargs) -> R:
        session, named = bind(args, kwargs)
        return run(session, name, named, lambda: fn(*args, **kwargs))

    return guarded_plain


def _admitted(session: Session, tool: str, args: Mapping[str, Any] | None) -> Decision:
    decision = session.check(tool, args)
    if not decision.allowed:
        raise CallRefused(decision)
    return decision


def _recorded(session: Session, decision: Decision, result: R, begun: float) -> R:
    recorded = session.record(decision, result=result, duration=time.monotonic() - begun)
    if recorded.advice and isinstance(result, str):
        # Text plus text is text: the type of the result stays what it was.
        return cast("R", f"{result}\n\n{recorded.advice}")
    return result
