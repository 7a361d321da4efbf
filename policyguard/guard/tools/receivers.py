"""Tells apart the objects whose methods are called, which are not arguments of the call.

`ann.close()` and `bob.close()` are different calls, though both have the arguments `{}`. Which
object it is decides, not what it holds: most count, cache or keep a client. Two objects are also
the same if all that they hold is equal data, so that a helper which is made anew for each call does
not hide a loop. See docs/decisions/0029.
"""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable
from functools import partial
from typing import Any

from policyguard.model.policy import Bounds


class GuardedTools:
    """What a guard knows of the functions it wraps: the objects on which sessions called them.

    So many sessions are remembered as may be open (`bounds.sessions`), and so many objects of a
    tool as calls may be in flight; others count as never seen before.
    """

    def __init__(self, bounds: Bounds) -> None:
        self.warned: set[str] = set()
        """Tools whose calls cannot be compared, which was logged."""
        self._bounds = bounds
        self._sessions: dict[str, dict[str, _KnownReceivers]] = {}

    def mark_receiver(self, session: str, tool: str, receiver: tuple[object, ...]) -> str:
        """Return a text that tells a receiver from the first one of this session and tool.

        For the first one it is empty.
        """
        tools = self._sessions.pop(session, None) or {}
        self._sessions[session] = tools  # the latest is last
        if len(self._sessions) > self._bounds.sessions:
            self._sessions.pop(next(iter(self._sessions)), None)
        known = tools.get(tool)
        if known is None:
            known = tools[tool] = _KnownReceivers(self._bounds)
        return known.mark(receiver)


class _KnownReceivers:
    """The receivers of one tool in one session, by identity and by content."""

    __slots__ = ("_bounds", "_by_content", "_by_identity", "_is_first")

    def __init__(self, bounds: Bounds) -> None:
        self._bounds = bounds
        self._by_identity: dict[tuple[int, ...], tuple[str, tuple[object, ...]]] = {}
        self._by_content: dict[str, str] = {}
        self._is_first = True

    def mark(self, receiver: tuple[object, ...]) -> str:
        """Return the text that stands for a receiver."""
        identity = tuple(map(id, receiver))
        known = self._by_identity.get(identity)
        if known is not None:
            return known[0]
        if len(self._by_identity) + len(self._by_content) >= self._bounds.in_flight:
            self._by_identity.clear()
            self._by_content.clear()
        from policyguard.guard.tools.arguments import digest_state  # only for methods

        bounds = self._bounds
        content = digest_state(receiver, depth=bounds.argument_depth, size=bounds.argument_bytes)
        text = self._by_content.get(content)
        if text is None:
            kind = type(receiver[0]).__qualname__
            text = "" if self._is_first else f"<{kind} #{os.urandom(6).hex()}>"
            self._is_first = False
            if content:
                self._by_content[content] = text
        forget = partial(self._by_identity.pop, identity, None)
        self._by_identity[identity] = (text, tuple([_refer(part, forget) for part in receiver]))
        return text


def _refer(part: object, forget: Callable[[], object]) -> object:
    """Keep an object's identity from being taken by another: call `forget` when it is gone."""
    try:
        return weakref.ref(part, lambda _: forget())
    except TypeError:  # a number, a text, a tuple …: it is kept alive instead
        return part


def bound_objects(fn: Callable[..., Any]) -> tuple[object, ...]:
    """Return the objects that a tool's function is bound to; they are in none of its parameters.

    That of a bound method, the positional arguments of a `functools.partial`, and a callable object
    itself.
    """
    found: list[object] = []
    while isinstance(fn, partial):
        found += fn.args
        fn = fn.func
    owner = getattr(fn, "__self__", None)
    if owner is not None:
        return (*found, owner)
    is_function = hasattr(fn, "__code__") or isinstance(fn, type)
    return tuple(found) if is_function else (*found, fn)
