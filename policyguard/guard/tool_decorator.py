"""`@guard.tool`: a function each of whose calls goes through the current session."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar, cast

import msgspec

if TYPE_CHECKING:
    from policyguard.guard.guard import Guard
    from policyguard.guard.session import Session

P = ParamSpec("P")
R = TypeVar("R")

active_sessions: ContextVar[tuple[Session, ...]] = ContextVar("policyguard_sessions", default=())
"""The sessions of the surrounding `with guard.session(...):` blocks, innermost last."""


def exit_session(session: Session) -> None:
    """A `with` block of a session has ended: maybe before one that was entered after it."""
    inner: list[Session] = []
    outer = [*active_sessions.get()]
    while outer and (last := outer.pop()) is not session:
        inner.insert(0, last)
    active_sessions.set((*outer, *inner))


_RECEIVER_NAMES = ("self", "cls")
"""The first parameter of a method, by convention: whose method it is, no argument of the call."""


def guard_tool(guard: Guard, fn: Callable[P, R]) -> Callable[P, R]:
    """Wrap a function so that each call goes through the current session. See `Guard.tool`."""
    from policyguard.guard.tool_runner import arun, run  # asyncio, which a check does not need

    signature = _tool_signature(fn)
    name = _tool_name(fn)
    first = next(iter(signature.parameters), "")

    def bind(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Session, dict[str, Any]]:
        session = next((one for one in reversed(active_sessions.get()) if one.guard is guard), None)
        if session is None:
            raise RuntimeError(
                f"`{name}` was called outside a session of its guard; "
                "put `with guard.session(...):` around the agent's run"
            )
        named = _named_arguments(signature.bind(*args, **kwargs))
        if first in _RECEIVER_NAMES:
            named.pop(first, None)
        return session, {name: _to_json_like(value) for name, value in named.items()}

    if is_async(fn):
        awaited = cast("Callable[P, Awaitable[Any]]", fn)

        @functools.wraps(fn)
        async def guarded_async(*args: P.args, **kwargs: P.kwargs) -> Any:
            session, named = bind(args, kwargs)
            return await arun(session, name, named, lambda: awaited(*args, **kwargs))

        return cast("Callable[P, R]", guarded_async)

    @functools.wraps(fn)
    def guarded_plain(*args: P.args, **kwargs: P.kwargs) -> R:
        session, named = bind(args, kwargs)
        return run(session, name, named, lambda: fn(*args, **kwargs))

    return guarded_plain


def _tool_signature(fn: Callable[..., Any]) -> inspect.Signature:
    """The parameters of what can be a tool. `TypeError` for what cannot be one."""
    if isinstance(fn, (classmethod, staticmethod)):
        raise TypeError(f"put `@guard.tool` below `@{type(fn).__name__}`, next to the function")
    if not callable(fn):
        raise TypeError(f"`guard.tool` takes a function, not a `{type(fn).__name__}`")
    if inspect.isgeneratorfunction(fn) or inspect.isasyncgenfunction(fn):
        raise TypeError(
            f"`{_tool_name(fn)}` is a generator: a tool returns all of its result at once"
        )
    try:
        return inspect.signature(fn)
    except ValueError:
        raise TypeError(
            f"the parameters of `{_tool_name(fn)}` are not known; wrap it in a function of yours"
        ) from None


def _named_arguments(bound: inspect.BoundArguments) -> dict[str, Any]:
    """What a function is called with, by name: defaults too, and each of `**kwargs` for itself."""
    bound.apply_defaults()
    named = bound.arguments
    for name, parameter in bound.signature.parameters.items():
        if parameter.kind is parameter.VAR_KEYWORD:
            more = named.pop(name)
            # Beside parameters that are given by place alone, the same name may be given once more.
            again = {one: more.pop(one) for one in tuple(more) if one in named}
            if again:
                if name in more:
                    again[name] = more.pop(name)
                named[name] = again
            named |= more
    return named


def _tool_name(fn: Callable[..., Any]) -> str:
    """The tool's name: the function's, or the class's of an object that can be called."""
    inner = _unwrap_partial(fn)
    return str(getattr(inner, "__name__", type(inner).__name__))


def is_async(fn: Callable[..., Any]) -> bool:
    """Whether a call of it has to be awaited, as far as its definition tells."""
    inner = _unwrap_partial(fn)
    return inspect.iscoroutinefunction(inner) or inspect.iscoroutinefunction(type(inner).__call__)


def _unwrap_partial(fn: Callable[..., Any]) -> Callable[..., Any]:
    """What a `functools.partial` calls in the end."""
    while isinstance(fn, functools.partial):
        fn = fn.func
    return fn


def _to_json_like(value: object) -> Any:
    """An argument of a Python function as JSON; what is none (a client, a file) by its type."""
    try:
        return msgspec.to_builtins(value, enc_hook=_type_placeholder)
    except (TypeError, ValueError, RecursionError):
        return _type_placeholder(value)


def _type_placeholder(value: object) -> str:
    return f"<{type(value).__qualname__}>"
