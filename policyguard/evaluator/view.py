"""What the policy's expressions see of a call: the variables of POLICY_LANGUAGE §5."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


class View:
    """One value a variable; a slot that no applicable expression reads stays None."""

    __slots__ = ("call", "lists", "now", "outcome", "params", "session", "tags")

    call: dict[str, Any]
    outcome: dict[str, Any] | None
    session: dict[str, Any]
    tags: dict[str, Any]
    lists: dict[str, Any]
    params: dict[str, Any]
    now: Any


Expression = Callable[[View], Any]
"""A compiled CEL expression. Raises `ExpressionError` where it has no value."""
