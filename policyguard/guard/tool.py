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

entered: ContextVar[tuple[Session, ...]] = ContextVar("policyguard_sessions", default=())
"""The sessions of the surrounding `with guard.session(...):` blocks, innermost last."""


def left(session: Session) -> None:
    """A `with` block of a session has ended: maybe before one that was entered after it."""
    inner: list[Session] = []
    outer = [*entered.get()]
    while outer and (last := outer.pop()) is not session:
        inner.insert(0, last)
    entered.set((*outer, *inner))


_RECEIVERS = ("self", "cls")
"""The first parameter of a method, by convention: whose method it is, no argument of the call."""


def guarded(guard: Guard, fn: Callable[P, R]) -> Callable[P, R]:
    """Wrap a function so that each call goes through the current session. See `Guard.tool`."""
    from policyguard.guard.running import arun, run  # asyncio, which a check does not need

    signature = _signature(fn)
    name = _name(fn)
    first = next(iter(signature.parameters), "")

    def bind(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Session, dict[str, Any]]:
        session = next((one for one in reversed(entered.get()) if one.guard is guard), None)
        if session is None:
            raise RuntimeError(
                f"`{name}` was called outside a session of its guard; "
                "put `with guard.session(...):` around the agent's run"
            )
        named = _arguments(signature.bind(*args, **kwargs))
        if first in _RECEIVERS:
            named.pop(first, None)
        return session, {name: _json_like(value) for name, value in named.items()}

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


def _signature(fn: Callable[..., Any]) -> inspect.Signature:
    """The parameters of what can be a tool. `TypeError` for what cannot be one."""
    if isinstance(fn, (classmethod, staticmethod)):
        raise TypeError(f"put `@guard.tool` below `@{type(fn).__name__}`, next to the function")
    if not callable(fn):
        raise TypeError(f"`guard.tool` takes a function, not a `{type(fn).__name__}`")
    if inspect.isgeneratorfunction(fn) or inspect.isasyncgenfunction(fn):
        raise TypeError(f"`{_name(fn)}` is a generator: a tool returns all of its result at once")
    try:
        return inspect.signature(fn)
    except ValueError:
        raise TypeError(
            f"the parameters of `{_name(fn)}` are not known; wrap it in a function of yours"
        ) from None


def _arguments(bound: inspect.BoundArguments) -> dict[str, Any]:
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


def _name(fn: Callable[..., Any]) -> str:
    """The tool's name: the function's, or the class's of an object that can be called."""
    inner = _inner(fn)
    return str(getattr(inner, "__name__", type(inner).__name__))


def is_async(fn: Callable[..., Any]) -> bool:
    """Whether a call of it has to be awaited, as far as its definition tells."""
    inner = _inner(fn)
    return inspect.iscoroutinefunction(inner) or inspect.iscoroutinefunction(type(inner).__call__)


def _inner(fn: Callable[..., Any]) -> Callable[..., Any]:
    """What a `functools.partial` calls in the end."""
    while isinstance(fn, functools.partial):
        fn = fn.func
    return fn


def _json_like(value: object) -> Any:
    """An argument of a Python function as JSON; what is none (a client, a file) by its type."""
    try:
        return msgspec.to_builtins(value, enc_hook=_named)
    except (TypeError, ValueError, RecursionError):
        return _named(value)


def _named(value: object) -> str:
    return f"<{type(value).__qualname__}>"
