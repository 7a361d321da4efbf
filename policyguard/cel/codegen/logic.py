"""Generates `&&` and `||`, with and without absorbing errors.

Without absorbing they are Python's `and` and `or`. With it, every operand that may raise gets its
own `try`, and its error is kept until the other operands are evaluated (cel-spec langdef.md,
"Logical Operators").
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any, Final

from policyguard.cel.codegen import operations
from policyguard.cel.codegen.writer import CodeWriter, Precedence, PythonExpr
from policyguard.cel.syntax.ast import Expr, Logic

_MAX_NESTED_BLOCKS: Final = 17
"""Nested `for` and `try` blocks. CPython allows 20 in a function; one encloses everything."""


class TooManyBlocksError(Exception):
    """More nested operators that absorb errors than a Python function can hold."""


class LogicWriter(ABC):
    """Writes the logical operators of one function."""

    def __init__(
        self, source: str, names: Iterable[str], constants: dict[str, Any], *, absorbing: bool
    ) -> None:
        self.source = source
        self.writer = CodeWriter(names, constants)
        self.absorbing = absorbing
        self.may_absorb = False
        """Whether an error may occur where an operator would absorb it."""
        self._blocks = 0

    @abstractmethod
    def write(self, node: Expr) -> PythonExpr:
        """Write the statements that `node` needs, and return its Python expression."""

    def write_condition(self, node: Expr) -> PythonExpr:
        """Write `node` as a condition: anything but a bool raises."""
        return operations.condition(self.writer, self.write(node))

    def write_source_comment(self, node: Expr) -> None:
        """Write the source of `node` as a comment."""
        self.writer.add_comment(self.source[node.span.start : node.span.end])

    def write_logic(self, node: Logic) -> PythonExpr:
        """Write `&&` or `||`."""
        if self.absorbing:
            holds, failure = self.write_absorbing(node)
            if failure is not None:
                with self.writer.block(f"if {failure} is not None:"):
                    self.writer.add_line(f"raise absorbed_error({failure})")
            return holds
        writer = self.writer
        pending: list[PythonExpr] = []
        for operand in node.operands:
            self.may_absorb = self.may_absorb or not all(expr.is_safe for expr in pending)
            with writer.capture() as before:
                expr = self.write_condition(operand)
            if not before or not pending:
                writer.insert(before)
                pending.append(expr)
                continue
            # The statements that this operand needs must run only if the operand does.
            holds_name = writer.new_name("holds")
            writer.add_line(f"{holds_name} = {_join_operands(node, pending).code}")
            with writer.block(_continue_test(node, holds_name)):
                writer.insert(before)
                writer.add_line(f"{holds_name} = {expr.code}")
            pending = [PythonExpr(holds_name, "bool")]
        return _join_operands(node, pending)

    def write_absorbing(self, node: Logic) -> tuple[PythonExpr, str | None]:
        """Write `node`; return its value, and the name that holds its error, or None.

        A nested operator passes its error on in that variable, so that only the innermost operands
        need a `try`.
        """
        writer = self.writer
        holds = writer.new_name("holds")
        failure = writer.new_name("failure")
        operands: list[tuple[list[str], PythonExpr, str | None]] = []
        for operand in node.operands:
            with writer.capture() as before:
                operands.append((before, *self.write_absorbable(operand)))
        *others, (last_before, _, last_failure) = operands
        certain = all(expr.is_safe for _, expr, _ in others)
        if certain and not last_before and last_failure is None:
            return _join_operands(node, [expr for _, expr, _ in operands]), None
        self.write_source_comment(node)
        writer.add_line(f"{holds} = {node.operator == '&&'}")
        writer.add_line(f"{failure} = None")
        first, *rest = operands
        self.write_absorbed_operand(holds, failure, *first)
        for operand_parts in rest:
            with writer.block(_continue_test(node, holds)):
                self.write_absorbed_operand(holds, failure, *operand_parts)
        with writer.block("if not " + _continue_test(node, holds).removeprefix("if ")):
            writer.add_line(f"{failure} = None")
        return PythonExpr(holds, "bool"), failure

    def write_absorbable(self, node: Expr) -> tuple[PythonExpr, str | None]:
        """Write a condition; return it, and the name that holds its error, or None if it raises."""
        if isinstance(node, Logic):
            return self.write_absorbing(node)
        with self.nested_block():
            return self.write_condition(node), None

    def write_absorbed_operand(
        self, holds: str, failure: str, before: list[str], expr: PythonExpr, inner: str | None
    ) -> None:
        """Write `holds = expr` after the statements `before`, or store its error in `failure`."""
        writer = self.writer
        if inner is not None:
            writer.insert(before)
            with writer.block(f"if {inner} is None:"):
                writer.add_line(f"{holds} = {expr.code}")
            with writer.block("else:"):
                writer.add_line(f"{failure} = {inner}")
        elif expr.is_safe:
            writer.add_line(f"{holds} = {expr.code}")
        else:
            with writer.block("try:"):
                writer.insert(before)
                writer.add_line(f"{holds} = {expr.code}")
            with writer.block("except ERRORS as error:"):
                writer.add_line(f"{failure} = describe_error(error)")

    @contextmanager
    def nested_block(self) -> Iterator[None]:
        """Count the `for` and `try` blocks that Python has to nest."""
        self._blocks += 1
        if self._blocks > _MAX_NESTED_BLOCKS:
            raise TooManyBlocksError
        yield
        self._blocks -= 1


def _join_operands(node: Logic, exprs: list[PythonExpr]) -> PythonExpr:
    if len(exprs) == 1:
        return exprs[0]
    word, precedence = ("and", Precedence.AND) if node.operator == "&&" else ("or", Precedence.OR)
    code = f" {word} ".join(expr.wrap(precedence) for expr in exprs)
    return PythonExpr(code, "bool", precedence, all(expr.is_safe for expr in exprs))


def _continue_test(node: Logic, holds: str) -> str:
    """Return the test for evaluating the next operand."""
    return f"if {holds}:" if node.operator == "&&" else f"if not {holds}:"
