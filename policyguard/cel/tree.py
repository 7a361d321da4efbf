"""The syntax tree: what an expression says, without how it was written.

Every node knows the code points that it came from, so that any later phase can point at them.
Macros are expanded here already (`Has`, `Comprehension`), chains of `&&` and `||` are flat, and
parentheses are gone. Nodes compare by identity: the checker attaches what it finds out to them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal as OneOf

from policyguard.cel.macros import Kind

__all__ = [
    "Binary",
    "Broken",
    "Call",
    "Comprehension",
    "Conditional",
    "Constant",
    "Has",
    "Identifier",
    "Index",
    "ListLiteral",
    "Logic",
    "MapLiteral",
    "Node",
    "Select",
    "Span",
    "Unary",
    "Variable",
    "children",
    "dotted",
]

ConstantValue = None | bool | int | float | str | bytes


@dataclass(frozen=True, slots=True)
class Span:
    """A stretch of the source: code points `start` up to `end`."""

    start: int
    end: int


@dataclass(eq=False, slots=True)
class Node:
    """A part of an expression, and where it stands."""

    span: Span


@dataclass(eq=False, slots=True)
class Constant(Node):
    """A literal: null, a bool, a number, a string or bytes. A uint is a `numbers.Uint`."""

    value: ConstantValue


@dataclass(eq=False, slots=True)
class Identifier(Node):
    """A name. `absolute` means that it was written with a leading dot."""

    name: str
    absolute: bool = False


@dataclass(eq=False, slots=True)
class Select(Node):
    """`operand.field`."""

    operand: Node
    field: str
    field_span: Span


@dataclass(eq=False, slots=True)
class Has(Node):
    """`has(operand.field)`."""

    selection: Select


@dataclass(eq=False, slots=True)
class Index(Node):
    """`operand[key]`."""

    operand: Node
    key: Node


@dataclass(eq=False, slots=True)
class Call(Node):
    """`name(arguments)`, or `receiver.name(arguments)`."""

    receiver: Node | None
    name: str
    name_span: Span
    arguments: list[Node]


@dataclass(eq=False, slots=True)
class Unary(Node):
    """`!operand` or `-operand`."""

    operator: OneOf["!", "-"]
    operand: Node


@dataclass(eq=False, slots=True)
class Binary(Node):
    """A comparison, `in`, or arithmetic."""

    operator: str
    left: Node
    right: Node


@dataclass(eq=False, slots=True)
class Logic(Node):
    """`a && b && …` or `a || b || …`: two operands or more."""

    operator: OneOf["&&", "||"]
    operands: list[Node]


@dataclass(eq=False, slots=True)
class Conditional(Node):
    """`condition ? then : otherwise`."""

    condition: Node
    then: Node
    otherwise: Node


@dataclass(eq=False, slots=True)
class ListLiteral(Node):
    """`[items]`."""

    items: list[Node]


@dataclass(eq=False, slots=True)
class MapLiteral(Node):
    """`{key: value, …}`."""

    entries: list[tuple[Node, Node]]


@dataclass(eq=False, slots=True)
class Variable:
    """A variable that a macro binds, in its body only."""

    name: str
    span: Span


@dataclass(eq=False, slots=True)
class Comprehension(Node):
    """A macro over a list or map: `all`, `exists`, `exists_one`, `filter`, `map` and friends.

    `condition` is the predicate (or the filter of `map`), `result` what `map`, `transformList` and
    `transformMap` collect. With two variables the first is the index or key.
    """

    macro: Kind
    source: Node
    variables: list[Variable]
    condition: Node | None
    result: Node | None


@dataclass(eq=False, slots=True)
class Broken(Node):
    """Stands where something could not be read; a problem has been reported for it."""


def children(node: Node) -> Iterator[Node]:
    """The nodes directly below `node`, in the order in which they are written."""
    match node:
        case Select(operand=operand) | Unary(operand=operand):
            yield operand
        case Has(selection=selection):
            yield selection
        case Index(operand=operand, key=key):
            yield operand
            yield key
        case Call(receiver=receiver, arguments=arguments):
            if receiver is not None:
                yield receiver
            yield from arguments
        case Binary(left=left, right=right):
            yield left
            yield right
        case Logic(operands=operands):
            yield from operands
        case Conditional(condition=condition, then=then, otherwise=otherwise):
            yield condition
            yield then
            yield otherwise
        case ListLiteral(items=items):
            yield from items
        case MapLiteral(entries=entries):
            for key, value in entries:
                yield key
                yield value
        case Comprehension(source=source, condition=condition, result=result):
            yield source
            if condition is not None:
                yield condition
            if result is not None:
                yield result
        case _:
            return


def dotted(node: Node) -> tuple[Identifier, list[str]] | None:
    """The identifier and the fields of `a.b.c`; None for anything else."""
    fields: list[str] = []
    while isinstance(node, Select):
        fields.append(node.field)
        node = node.operand
    if isinstance(node, Identifier):
        fields.reverse()
        return node, fields
    return None
