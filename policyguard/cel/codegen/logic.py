"""Writing `&&` and `||`, with and without the absorption of errors.

Without it they are Python's own `and` and `or`. With it, every operand that may raise gets a `try`
of its own, and what it raised is kept until the other operands have had their say (cel-spec
langdef.md, "Logical Operators").
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any, Final

from msgspec.structs import replace

from policyguard.cel.codegen import operations
from policyguard.cel.codegen.writer import CodeWriter, Precedence, PythonExpr
from policyguard.cel.syntax.tree import Expr, Logic

__all__ = ["LogicWriter", "TooManyBlocksError"]

_MAX_NESTED_BLOCKS: Final = 17
"""`for` and `try` inside each other. CPython allows 20 in a function; one is around everything."""


class TooManyBlocksError(Exception):
    """More operators that absorb errors inside each other than a Python function can hold."""


class LogicWriter(ABC):
    """Writes one function; this part of it the logical operators."""

    def __init__(
        self, source: str, names: Iterable[str], constants: dict[str, Any], *, absorbing: bool
    ) -> None:
        self.source = source
        self.writer = CodeWriter(names, constants)
        self.absorbing = absorbing
        self.may_absorb = False
        """Whether an error has been seen to be possible where an operator would absorb it."""
        self._blocks = 0

    @abstractmethod
    def write(self, node: Expr) -> PythonExpr:
        """The Python expression for `node`; statements that it needs first are written."""

    def write_condition(self, node: Expr) -> PythonExpr:
        """The Python expression for `node` where a bool must stand."""
        return operations.condition(self.writer, self.write(node))

    def write_source_comment(self, node: Expr) -> None:
        """Write the source of `node` as a comment."""
        self.writer.add_comment(self.source[node.span.start : node.span.end])

    def write_logic(self, node: Logic) -> PythonExpr:
        """`&&` or `||`."""
        if self.absorbing:
            holds, failure = self.write_absorbing(node)
            if failure is not None:
                with self.writer.block(f"if {failure} is not None:"):
                    self.writer.add_line(f"raise failed({failure})")
            return holds
        writer = self.writer
        pending: list[PythonExpr] = []
        for operand in node.operands:
            self.may_absorb = self.may_absorb or not all(piece.is_safe for piece in pending)
            with writer.capture() as before:
                piece = self.write_condition(operand)
            if not before or not pending:
                writer.insert(before)
                pending.append(replace(piece, is_safe=piece.is_safe and not before))
                continue
            # The statements that this operand needs must run only if the operand does.
            holds_name = writer.new_name("holds")
            writer.add_line(f"{holds_name} = {_join_operands(node, pending).code}")
            with writer.block(_continue_test(node, holds_name)):
                writer.insert(before)
                writer.add_line(f"{holds_name} = {piece.code}")
            pending = [PythonExpr(holds_name, "bool")]
        return _join_operands(node, pending)

    def write_absorbing(self, node: Logic) -> tuple[PythonExpr, str | None]:
        """The value of `node`, and the name that holds the error it has instead, or None.

        An operator directly inside another hands its error over in that variable, so that only
        the innermost operands need a `try`.
        """
        writer = self.writer
        holds = writer.new_name("holds")
        failure = writer.new_name("failure")
        operands: list[tuple[list[str], PythonExpr, str | None]] = []
        for operand in node.operands:
            with writer.capture() as before:
                operands.append((before, *self.write_absorbable(operand)))
        *others, (last_before, _, last_failure) = operands
        certain = all(piece.is_safe and not (before or failed) for before, piece, failed in others)
        if certain and not last_before and last_failure is None:
            return _join_operands(node, [piece for _, piece, _ in operands]), None
        self.write_source_comment(node)
        writer.add_line(f"{holds} = {node.operator == '&&'}")
        writer.add_line(f"{failure} = None")
        for position, operand_parts in enumerate(operands):
            if position == 0:
                self.write_absorbed_operand(holds, failure, *operand_parts)
            else:
                with writer.block(_continue_test(node, holds)):
                    self.write_absorbed_operand(holds, failure, *operand_parts)
        with writer.block("if not " + _continue_test(node, holds).removeprefix("if ")):
            writer.add_line(f"{failure} = None")
        return PythonExpr(holds, "bool"), failure

    def write_absorbable(self, node: Expr) -> tuple[PythonExpr, str | None]:
        """A condition, and the name that holds its error where it does not raise it."""
        if isinstance(node, Logic):
            return self.write_absorbing(node)
        with self.nested_block():
            return self.write_condition(node), None

    def write_absorbed_operand(
        self, holds: str, failure: str, before: list[str], piece: PythonExpr, inner: str | None
    ) -> None:
        """Write `holds = piece`, or its error into `failure`."""
        writer = self.writer
        if inner is not None:
            writer.insert(before)
            with writer.block(f"if {inner} is None:"):
                writer.add_line(f"{holds} = {piece.code}")
            with writer.block("else:"):
                writer.add_line(f"{failure} = {inner}")
        elif piece.is_safe and not before:
            writer.add_line(f"{holds} = {piece.code}")
        else:
            with writer.block("try:"):
                writer.insert(before)
                writer.add_line(f"{holds} = {piece.code}")
            with writer.block("except ERRORS as error:"):
                writer.add_line(f"{failure} = reason(error)")

    @contextmanager
    def nested_block(self) -> Iterator[None]:
        """Count the `for` and `try` that Python has to nest."""
        self._blocks += 1
        if self._blocks > _MAX_NESTED_BLOCKS:
            raise TooManyBlocksError
        yield
        self._blocks -= 1


def _join_operands(node: Logic, pieces: list[PythonExpr]) -> PythonExpr:
    if len(pieces) == 1:
        return pieces[0]
    word, level = ("and", Precedence.AND) if node.operator == "&&" else ("or", Precedence.OR)
    code = f" {word} ".join(piece.wrap(level) for piece in pieces)
    return PythonExpr(code, "bool", level, all(piece.is_safe for piece in pieces))


def _continue_test(node: Logic, holds: str) -> str:
    """The test whether the next operand is needed."""
    return f"if {holds}:" if node.operator == "&&" else f"if not {holds}:"
