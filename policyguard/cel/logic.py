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

from policyguard.cel import operations
from policyguard.cel.tree import Logic, Node
from policyguard.cel.writer import Level, Piece, Writer

__all__ = ["LogicWriter", "TooManyBlocksError"]

_MOST_BLOCKS: Final = 17
"""`for` and `try` inside each other. CPython allows 20 in a function; one is around everything."""


class TooManyBlocksError(Exception):
    """More operators that absorb errors inside each other than a Python function can hold."""


class LogicWriter(ABC):
    """Writes one function; this part of it the logical operators."""

    def __init__(
        self, source: str, names: Iterable[str], constants: dict[str, Any], *, absorbing: bool
    ) -> None:
        self.source = source
        self.writer = Writer(names, constants)
        self.absorbing = absorbing
        self.may_absorb = False
        """Whether an error has been seen to be possible where an operator would absorb it."""
        self._blocks = 0

    @abstractmethod
    def piece(self, node: Node) -> Piece:
        """The Python expression for `node`; statements that it needs first are written."""

    def condition(self, node: Node) -> Piece:
        """The Python expression for `node` where a bool must stand."""
        return operations.condition(self.writer, self.piece(node))

    def comment_on(self, node: Node) -> None:
        """Write the source of `node` as a comment."""
        self.writer.comment(self.source[node.span.start : node.span.end])

    def write_logic(self, node: Logic) -> Piece:
        """`&&` or `||`."""
        if self.absorbing:
            holds, failure = self.absorb(node)
            if failure is not None:
                with self.writer.block(f"if {failure} is not None:"):
                    self.writer.line(f"raise failed({failure})")
            return holds
        writer = self.writer
        pending: list[Piece] = []
        for operand in node.operands:
            self.may_absorb = self.may_absorb or not all(piece.safe for piece in pending)
            with writer.aside() as before:
                piece = self.condition(operand)
            if not before or not pending:
                writer.insert(before)
                pending.append(replace(piece, safe=piece.safe and not before))
                continue
            # The statements that this operand needs must run only if the operand does.
            holds_name = writer.name("holds")
            writer.line(f"{holds_name} = {_joined(node, pending).code}")
            with writer.block(_go_on(node, holds_name)):
                writer.insert(before)
                writer.line(f"{holds_name} = {piece.code}")
            pending = [Piece(holds_name, "bool")]
        return _joined(node, pending)

    def absorb(self, node: Logic) -> tuple[Piece, str | None]:
        """The value of `node`, and the name that holds the error it has instead, or None.

        An operator directly inside another hands its error over in that variable, so that only
        the innermost operands need a `try`.
        """
        writer = self.writer
        holds = writer.name("holds")
        failure = writer.name("failure")
        operands: list[tuple[list[str], Piece, str | None]] = []
        for operand in node.operands:
            with writer.aside() as before:
                operands.append((before, *self.absorbable(operand)))
        *others, (last_before, _, last_failure) = operands
        certain = all(piece.safe and not (before or failed) for before, piece, failed in others)
        if certain and not last_before and last_failure is None:
            return _joined(node, [piece for _, piece, _ in operands]), None
        self.comment_on(node)
        writer.line(f"{holds} = {node.operator == '&&'}")
        writer.line(f"{failure} = None")
        for position, operand_parts in enumerate(operands):
            if position == 0:
                self.absorb_operand(holds, failure, *operand_parts)
            else:
                with writer.block(_go_on(node, holds)):
                    self.absorb_operand(holds, failure, *operand_parts)
        with writer.block("if not " + _go_on(node, holds).removeprefix("if ")):
            writer.line(f"{failure} = None")
        return Piece(holds, "bool"), failure

    def absorbable(self, node: Node) -> tuple[Piece, str | None]:
        """A condition, and the name that holds its error where it does not raise it."""
        if isinstance(node, Logic):
            return self.absorb(node)
        with self.inner_block():
            return self.condition(node), None

    def absorb_operand(
        self, holds: str, failure: str, before: list[str], piece: Piece, inner: str | None
    ) -> None:
        """Write `holds = piece`, or its error into `failure`."""
        writer = self.writer
        if inner is not None:
            writer.insert(before)
            with writer.block(f"if {inner} is None:"):
                writer.line(f"{holds} = {piece.code}")
            with writer.block("else:"):
                writer.line(f"{failure} = {inner}")
        elif piece.safe and not before:
            writer.line(f"{holds} = {piece.code}")
        else:
            with writer.block("try:"):
                writer.insert(before)
                writer.line(f"{holds} = {piece.code}")
            with writer.block("except ERRORS as error:"):
                writer.line(f"{failure} = reason(error)")

    @contextmanager
    def inner_block(self) -> Iterator[None]:
        """Count the `for` and `try` that Python has to nest."""
        self._blocks += 1
        if self._blocks > _MOST_BLOCKS:
            raise TooManyBlocksError
        yield
        self._blocks -= 1


def _joined(node: Logic, pieces: list[Piece]) -> Piece:
    if len(pieces) == 1:
        return pieces[0]
    word, level = ("and", Level.AND) if node.operator == "&&" else ("or", Level.OR)
    code = f" {word} ".join(piece.at(level) for piece in pieces)
    return Piece(code, "bool", level, all(piece.safe for piece in pieces))


def _go_on(node: Logic, holds: str) -> str:
    """The test whether the next operand is needed."""
    return f"if {holds}:" if node.operator == "&&" else f"if not {holds}:"
