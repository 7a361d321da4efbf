"""Writing Python: pieces of expressions, statements with indentation, and names.

Nothing here knows CEL. A `Piece` is a Python expression with what its user must know about it; a
`Writer` collects the statements of one function. Whatever comes from outside gets into the text
only as `repr` of a string, as a checked identifier, or escaped in a comment.
"""

from __future__ import annotations

import keyword
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from enum import IntEnum
from typing import Any, Final

import msgspec

__all__ = ["CodeWriter", "Precedence", "PythonExpr"]

_COMMENT_WIDTH: Final = 90


class Precedence(IntEnum):
    """How tightly the outermost operator of a Python expression binds; the tightest first."""

    ATOM = 0
    ARITHMETIC = 1
    COMPARISON = 2
    NOT = 3
    AND = 4
    OR = 5
    CONDITIONAL = 6


class PythonExpr(msgspec.Struct, frozen=True):
    """A Python expression.

    `kind` is what its value certainly is (`bool`, `int`, `string`, …; empty where only run time
    can tell). `safe` means that evaluating it raises nothing that could be absorbed; `literal` that
    it stands in the expression as it is.
    """

    code: str
    kind: str = ""
    precedence: Precedence = Precedence.ATOM
    is_safe: bool = False
    is_literal: bool = False

    def wrap(self, precedence: Precedence) -> str:
        """The text, in parentheses unless it binds at least as tightly as `level`."""
        return self.code if self.precedence <= precedence else f"({self.code})"

    @property
    def is_name(self) -> bool:
        """Whether it is a name, which can be evaluated twice at no cost."""
        return self.code.isidentifier()

    @property
    def is_short(self) -> bool:
        """Whether it may be written twice. Anything longer, and nesting would double the text."""
        return self.is_literal or self.is_name


class CodeWriter:
    """The statements of one Python function, and the names in use."""

    def __init__(self, taken: Iterable[str], constants: dict[str, Any]) -> None:
        """Use no name in `taken`; `constants` may be shared with the writers of other functions."""
        self.lines: list[str] = []
        self.constants = constants
        self._depth = 1
        self._used_names = {*taken, *constants}

    def new_name(self, hint: str) -> str:
        """A new name, `wish` or close to it."""
        base = hint if hint.isidentifier() and hint.isascii() else "value"
        if keyword.iskeyword(base) or base.startswith("__"):
            base = f"{base.lstrip('_')}_"
        name = base
        number = 1
        while name in self._used_names or not name.isidentifier():
            number += 1
            name = f"{base}_{number}"
        self._used_names.add(name)
        return name

    def add_constant(self, hint: str, value: Any) -> str:
        """The name of an object that the function uses; the same name for an equal object."""
        for name, known in self.constants.items():
            if known is value or (known.__class__ is value.__class__ and known == value):
                return name
        name = self.new_name(hint)
        self.constants[name] = value
        return name

    def bind_once(self, piece: PythonExpr, hint: str) -> tuple[str, str]:
        """The text that evaluates `piece`, and the name that its value has from then on."""
        if piece.is_name:
            return piece.code, piece.code
        name = self.new_name(hint)
        return f"({name} := {piece.code})", name

    def add_line(self, text: str) -> None:
        """Add a statement."""
        self.lines.append("    " * self._depth + text)

    def add_comment(self, text: str) -> None:
        """Add a comment, on one line whatever `text` holds."""
        safe = " ".join(text.split()).encode("unicode_escape").decode("ascii")
        if len(safe) > _COMMENT_WIDTH:
            safe = f"{safe[:_COMMENT_WIDTH]} …"
        self.add_line(f"# {safe}")

    @contextmanager
    def block(self, head: str) -> Iterator[None]:
        """The statements written within stand below `head`."""
        self.add_line(head)
        self._depth += 1
        yield
        self._depth -= 1

    @contextmanager
    def capture(self) -> Iterator[list[str]]:
        """The statements written within are kept apart, to be placed with `insert`."""
        outside = self.lines
        kept: list[str] = []
        self.lines = kept
        depth, self._depth = self._depth, 0
        yield kept
        self.lines = outside
        self._depth = depth

    def insert(self, kept: list[str]) -> None:
        """Add statements kept apart, at the present indentation."""
        indentation = "    " * self._depth
        self.lines += [indentation + line for line in kept]
