"""The syntax tree: what an expression says, without how it was written.

Every node knows the code points that it came from, so that any later phase can point at them.
Macros are expanded here already (`Has`, `Comprehension`), chains of `&&` and `||` are flat, and
parentheses are gone. Nodes compare by identity: the checker attaches what it finds out to them.

The tree is plain data, which msgspec writes and reads (a policy that has been compiled before is
not parsed again). What is read is not trusted: whatever `check` and `generate` make of a node they
make of any node of its type.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from typing import Literal as OneOf

import msgspec

from policyguard.cel.macros import Kind
from policyguard.cel.uint import Uint

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
    "Operator",
    "Select",
    "Span",
    "Unary",
    "Variable",
    "children",
    "dotted",
]

Operator = OneOf["<", "<=", ">", ">=", "==", "!=", "in", "+", "-", "*", "/", "%"]


class Span(msgspec.Struct, frozen=True, array_like=True):
    """A stretch of the source: code points `start` up to `end`."""

    start: int
    end: int


class _Part(msgspec.Struct, eq=False, array_like=True, tag=True):
    """A part of an expression, and where it stands."""

    span: Span


class Constant(_Part):
    """A literal: null, a bool, a number, a string or bytes; a `Uint` where it is `unsigned`."""

    plain: Any  # msgspec knows no union of str and bytes; the checker refuses other classes
    unsigned: bool = False

    @property
    def value(self) -> bool | int | float | str | bytes | None:
        """What it stands for."""
        return Uint(self.plain) if self.unsigned else self.plain


class Identifier(_Part):
    """A name. `absolute` means that it was written with a leading dot."""

    name: str
    absolute: bool = False


class Select(_Part):
    """`operand.field`."""

    operand: Node
    field: str
    field_span: Span


class Has(_Part):
    """`has(operand.field)`."""

    selection: Select


class Index(_Part):
    """`operand[key]`."""

    operand: Node
    key: Node


class Call(_Part):
    """`name(arguments)`, or `receiver.name(arguments)`."""

    receiver: Node | None
    name: str
    name_span: Span
    arguments: list[Node]


class Unary(_Part):
    """`!operand` or `-operand`."""

    operator: OneOf["!", "-"]
    operand: Node


class Binary(_Part):
    """A comparison, `in`, or arithmetic."""

    operator: Operator
    left: Node
    right: Node


class Logic(_Part):
    """`a && b && …` or `a || b || …`: two operands or more."""

    operator: OneOf["&&", "||"]
    operands: list[Node]


class Conditional(_Part):
    """`condition ? then : otherwise`."""

    condition: Node
    then: Node
    otherwise: Node


class ListLiteral(_Part):
    """`[items]`."""

    items: list[Node]


class MapLiteral(_Part):
    """`{key: value, …}`."""

    entries: list[tuple[Node, Node]]


class Variable(msgspec.Struct, eq=False, array_like=True):
    """A variable that a macro binds, in its body only."""

    name: str
    span: Span


class Comprehension(_Part):
    """A macro over a list or map: `all`, `exists`, `exists_one`, `filter`, `map` and friends.

    `condition` is the predicate (or the filter of `map`), `result` what `map`, `transformList` and
    `transformMap` collect. With two variables the first is the index or key.
    """

    macro: Kind
    source: Node
    variables: list[Variable]
    condition: Node | None
    result: Node | None


class Broken(_Part):
    """Stands where something could not be read; a problem has been reported for it."""


Node = (
    Binary
    | Broken
    | Call
    | Comprehension
    | Conditional
    | Constant
    | Has
    | Identifier
    | Index
    | ListLiteral
    | Logic
    | MapLiteral
    | Select
    | Unary
)
"""Any part of an expression."""


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
