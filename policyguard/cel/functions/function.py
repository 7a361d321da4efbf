"""A function that expressions may call."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from policyguard.cel.types.types import Type


class Function(msgspec.Struct, frozen=True):
    """One overload of a function: its signature and implementation.

    `implementation` takes the receiver (if any) and the arguments. It returns a value of the type
    `result`, which generated code relies on, and raises `ValueError` or `TypeError` for an invalid
    argument; any other exception reaches the caller.

    `prepare_literal` requires the last argument to be a string literal. It is called with the
    literal at compile time; a `ValueError` becomes a compile error at the argument, and a result
    other than None replaces the literal in calls. Without `requires_literal`, other arguments are
    passed unchanged. Of a list, it is called with each item that is a string literal.
    """

    name: str
    receiver: Type | None
    parameters: tuple[Type, ...]
    result: Type
    implementation: Callable[..., Any]
    prepare_literal: Callable[[str], object] | None = None
    requires_literal: bool = True
    checks_operands: bool = False
    """Whether the implementation checks the types of its operands. Otherwise generated code checks
    strings, bytes, bools, numbers and times before the call."""
    is_linear: bool = True
    """Whether the cost grows with the size of the operands. Inside a macro it is counted."""
    library: str = ""
    """The library that it needs; without it, its use is a compile error that names `extra`."""
    extra: str = ""
    """The extra of policyguard that installs the library."""

    def __str__(self) -> str:
        """Format the signature for messages."""
        arguments = ", ".join(map(str, self.parameters))
        receiver = f"{self.receiver}." if self.receiver is not None else ""
        return f"{receiver}{self.name}({arguments})"
