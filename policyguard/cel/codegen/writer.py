"""Python source: expressions, indented statements, and names.

Nothing here depends on CEL. Outside text enters the generated code only as the `repr` of a string,
as a checked identifier, or escaped in a comment.
"""

from __future__ import annotations

import keyword
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from enum import IntEnum
from typing import Any, Final

import msgspec

_COMMENT_WIDTH: Final = 90


class Precedence(IntEnum):
    """The precedence of the outermost operator of a Python expression; the tightest first."""

    ATOM = 0
    ARITHMETIC = 1
    COMPARISON = 2
    NOT = 3
    AND = 4
    OR = 5
    CONDITIONAL = 6


class PythonExpr(msgspec.Struct, frozen=True):
    """A Python expression.

    `kind` is the certain kind of its value (`bool`, `int`, `string`, …; empty if only known at run
    time). `is_safe` means that it raises nothing that could be absorbed, and needs no statements
    before it; `is_literal` that it is a literal in the source.
    """

    code: str
    kind: str = ""
    precedence: Precedence = Precedence.ATOM
    is_safe: bool = False
    is_literal: bool = False

    def wrap(self, precedence: Precedence) -> str:
        """Return the text, in parentheses unless it binds at least as tightly as `precedence`."""
        return self.code if self.precedence <= precedence else f"({self.code})"

    @property
    def is_name(self) -> bool:
        """Whether it is a name, which costs nothing to evaluate twice."""
        return self.code.isidentifier()

    @property
    def is_short(self) -> bool:
        """Whether it may be written twice without nesting doubling the text."""
        return self.is_literal or self.is_name


class CodeWriter:
    """The statements of one Python function, and the names in use."""

    def __init__(self, reserved: Iterable[str], constants: dict[str, Any]) -> None:
        """Avoid `reserved` names; writers of other functions may share `constants`."""
        self.lines: list[str] = []
        self.constants = constants
        self._depth = 1
        self._used_names = {*reserved, *constants}

    def new_name(self, hint: str) -> str:
        """Return an unused name, `hint` or similar."""
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
        """Return the name of an object that the function uses; equal objects share a name."""
        for name, known in self.constants.items():
            if known is value or (known.__class__ is value.__class__ and known == value):
                return name
        name = self.new_name(hint)
        self.constants[name] = value
        return name

    def bind_once(self, expr: PythonExpr, hint: str) -> tuple[str, str]:
        """Return the text that evaluates `expr`, and the name of its value from then on."""
        if expr.is_name:
            return expr.code, expr.code
        name = self.new_name(hint)
        return f"({name} := {expr.code})", name

    def add_line(self, text: str) -> None:
        """Add a statement."""
        self.lines.append("    " * self._depth + text)

    def add_comment(self, text: str) -> None:
        """Add a comment on one line."""
        safe = " ".join(text.split()).encode("unicode_escape").decode("ascii")
        if len(safe) > _COMMENT_WIDTH:
            safe = f"{safe[:_COMMENT_WIDTH]} …"
        self.add_line(f"# {safe}")

    @contextmanager
    def block(self, head: str) -> Iterator[None]:
        """Indent the statements written in this context below `head`."""
        self.add_line(head)
        self._depth += 1
        yield
        self._depth -= 1

    @contextmanager
    def capture(self) -> Iterator[list[str]]:
        """Collect the statements written in this context, for `insert`."""
        outer_lines, outer_depth = self.lines, self._depth
        captured: list[str] = []
        self.lines, self._depth = captured, 0
        yield captured
        self.lines, self._depth = outer_lines, outer_depth

    def insert(self, captured: list[str]) -> None:
        """Add captured statements at the current indentation."""
        indentation = "    " * self._depth
        self.lines += [indentation + line for line in captured]
