"""Running a tool under a session: check, run, record in one step."""

from __future__ import annotations

import asyncio
import functools
import inspect
import time
from collections.abc import Awaitable, Callable, Mapping
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar, cast

import msgspec

from policyguard.model.decision import Decision
from policyguard.model.errors import CallRefused

if TYPE_CHECKING:
    from policyguard.guard.guard import Guard
    from policyguard.guard.session import Session

P = ParamSpec("P")
R = TypeVar("R")

entered: ContextVar[tuple[Session, ...]] = ContextVar("policyguard_sessions", default=())
"""The sessions of the surrounding `with guard.session(...):` blocks, innermost last."""


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
        session = next((one for one in reversed(entered.get()) if one.guard is guard), None)
        if session is None:
            raise RuntimeError(
                f"`{name}` was called outside a session of its guard; "
                "put `with guard.session(...):` around the agent's run"
            )
        named = signature.bind(*args, **kwargs).arguments
        return session, {name: _json_like(value) for name, value in named.items()}

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


def _json_like(value: object) -> Any:
    """An argument of a Python function as JSON; what is none (a client, a file) by its type."""
    try:
        return msgspec.to_builtins(value, enc_hook=_named)
    except (TypeError, ValueError, RecursionError):
        return _named(value)


def _named(value: object) -> str:
    return f"<{type(value).__qualname__}>"


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
