"""`@guard.tool`: functions whose calls are checked and recorded by the current session."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar, cast

from policyguard.guard.event_loop import is_async, unwrap_partial
from policyguard.guard.sessions.lifetime import active_sessions
from policyguard.guard.tools.arguments import ArgumentReader, are_equal, is_immutable
from policyguard.guard.tools.receivers import bound_objects

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
    bound_to = bound_objects(fn)

    def bind(
        args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[Session, dict[str, Any], Callable[[], bool] | None]:
        """Return the session, the arguments, and what says whether they are still the same."""
        session = next(
            (session for session in reversed(active_sessions.get()) if session.guard is guard), None
        )
        if session is None:
            raise RuntimeError(
                f"`{name}` was called outside a session of its guard; "
                "put `with guard.session(...):` around the agent's run"
            )
        named = _named_arguments(signature.bind(*args, **kwargs))
        receiver = (
            (*bound_to, named.pop(first))
            if first in _RECEIVER_NAMES and first in named
            else bound_to
        )
        mark = guard._tools.mark_receiver(session.id, name, receiver) if receiver else ""
        if mark:
            key = "self"
            while key in named:
                key += "_"
            named[key] = mark
        if is_immutable(named):
            return cast("Session", session), named, None
        bounds = guard._evaluator.bounds
        reader = ArgumentReader(bounds.argument_depth, bounds.argument_bytes)
        read = reader.read(named)
        return cast("Session", session), read, lambda: are_equal(reader.read(named), read)

    if is_async(fn):
        awaited = cast("Callable[P, Awaitable[Any]]", fn)

        @functools.wraps(fn)
        async def guarded_async(*args: P.args, **kwargs: P.kwargs) -> Any:
            session, named, is_unchanged = bind(args, kwargs)
            return await arun(session, name, named, lambda: awaited(*args, **kwargs), is_unchanged)

        return cast("Callable[P, R]", guarded_async)

    @functools.wraps(fn)
    def guarded_plain(*args: P.args, **kwargs: P.kwargs) -> R:
        session, named, is_unchanged = bind(args, kwargs)
        return run(session, name, named, lambda: fn(*args, **kwargs), is_unchanged)

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
