"""`@guard.tool`: functions whose calls are checked and recorded by the current session."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar, cast

from policyguard.guard.event_loop import is_async, unwrap_partial
from policyguard.guard.session_lifetime import active_sessions
from policyguard.guard.tools.arguments import read_arguments

if TYPE_CHECKING:
    from policyguard.guard.guard import Guard
    from policyguard.guard.session import Session

P = ParamSpec("P")
R = TypeVar("R")

_RECEIVER_NAMES = ("self", "cls")
"""First parameters of methods, which are not arguments of the call."""


def guard_tool(guard: Guard, fn: Callable[P, R]) -> Callable[P, R]:
    """Wrap a function so that its calls go through the current session. See `Guard.tool`."""
    from policyguard.guard.tools.runner import arun, run  # asyncio, which a check does not need

    signature = _tool_signature(fn)
    name = _tool_name(fn)
    first = next(iter(signature.parameters), "")

    def bind(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Session, dict[str, Any]]:
        session = next(
            (session for session in reversed(active_sessions.get()) if session.guard is guard), None
        )
        if session is None:
            raise RuntimeError(
                f"`{name}` was called outside a session of its guard; "
                "put `with guard.session(...):` around the agent's run"
            )
        named = _named_arguments(signature.bind(*args, **kwargs))
        if first in _RECEIVER_NAMES:
            named.pop(first, None)
        bounds = guard._evaluator.bounds
        read = read_arguments(named, depth=bounds.argument_depth, size=bounds.argument_bytes)
        return cast("Session", session), read

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
    """Return the signature of a tool. `TypeError` for what cannot be one."""
    if isinstance(fn, (classmethod, staticmethod)):
        raise TypeError(f"put `@guard.tool` below `@{type(fn).__name__}`, next to the function")
    if not callable(fn):
        raise TypeError(f"`guard.tool` takes a function, not a `{type(fn).__name__}`")
    if inspect.isgeneratorfunction(fn) or inspect.isasyncgenfunction(fn):
        raise TypeError(
            f"`{_tool_name(fn)}` is a generator; a tool returns its whole result at once"
        )
    try:
        return inspect.signature(fn)
    except ValueError:
        raise TypeError(
            f"the parameters of `{_tool_name(fn)}` are unknown; wrap it in a function of your own"
        ) from None


def _named_arguments(bound: inspect.BoundArguments) -> dict[str, Any]:
    """Return the arguments by name, with defaults, and with `**kwargs` unpacked."""
    bound.apply_defaults()
    named = bound.arguments
    for name, parameter in bound.signature.parameters.items():
        if parameter.kind is parameter.VAR_KEYWORD:
            extra = named.pop(name)
            # The name of a positional-only parameter may be used again as a keyword.
            repeated = {session: extra.pop(session) for session in tuple(extra) if session in named}
            if repeated:
                if name in extra:
                    repeated[name] = extra.pop(name)
                named[name] = repeated
            named |= extra
    return named


def _tool_name(fn: Callable[..., Any]) -> str:
    """Return the name of a function, or of a callable object's class."""
    inner = unwrap_partial(fn)
    return str(getattr(inner, "__name__", type(inner).__name__))
