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

from policyguard.cel.syntax.macros import MacroKind
from policyguard.cel.types.uint import Uint

__all__ = [
    "BadExpr",
    "Binary",
    "Call",
    "Comprehension",
    "Conditional",
    "Constant",
    "Expr",
    "Has",
    "Identifier",
    "Index",
    "ListLiteral",
    "Logic",
    "MapLiteral",
    "Operator",
    "Select",
    "TextSpan",
    "Unary",
    "Variable",
    "iter_children",
    "split_dotted_name",
]

Operator = OneOf["<", "<=", ">", ">=", "==", "!=", "in", "+", "-", "*", "/", "%"]


class TextSpan(msgspec.Struct, frozen=True, array_like=True):
    """A stretch of the source: code points `start` up to `end`."""

    start: int
    end: int


class _LocatedExpr(msgspec.Struct, eq=False, array_like=True, tag=True):
    """A part of an expression, and where it stands."""

    span: TextSpan


class Constant(_LocatedExpr):
    """A literal: null, a bool, a number, a string or bytes; a `Uint` where it is `unsigned`."""

    raw_value: Any  # msgspec knows no union of str and bytes; the checker refuses other classes
    unsigned: bool = False

    @property
    def value(self) -> bool | int | float | str | bytes | None:
        """What it stands for."""
        return Uint(self.raw_value) if self.unsigned else self.raw_value


class Identifier(_LocatedExpr):
    """A name. `absolute` means that it was written with a leading dot."""

    name: str
    absolute: bool = False


class Select(_LocatedExpr):
    """`operand.field`."""

    operand: Expr
    field: str
    field_span: TextSpan


class Has(_LocatedExpr):
    """`has(operand.field)`."""

    selection: Select


class Index(_LocatedExpr):
    """`operand[key]`."""

    operand: Expr
    key: Expr


class Call(_LocatedExpr):
    """`name(arguments)`, or `receiver.name(arguments)`."""

    receiver: Expr | None
    name: str
    name_span: TextSpan
    arguments: list[Expr]


class Unary(_LocatedExpr):
    """`!operand` or `-operand`."""

    operator: OneOf["!", "-"]
    operand: Expr


class Binary(_LocatedExpr):
    """A comparison, `in`, or arithmetic."""

    operator: Operator
    left: Expr
    right: Expr


class Logic(_LocatedExpr):
    """`a && b && …` or `a || b || …`: two operands or more."""

    operator: OneOf["&&", "||"]
    operands: list[Expr]


class Conditional(_LocatedExpr):
    """`condition ? then : otherwise`."""

    condition: Expr
    then: Expr
    otherwise: Expr


class ListLiteral(_LocatedExpr):
    """`[items]`."""

    items: list[Expr]


class MapLiteral(_LocatedExpr):
    """`{key: value, …}`."""

    entries: list[tuple[Expr, Expr]]


class Variable(msgspec.Struct, eq=False, array_like=True):
    """A variable that a macro binds, in its body only."""

    name: str
    span: TextSpan


class Comprehension(_LocatedExpr):
    """A macro over a list or map: `all`, `exists`, `exists_one`, `filter`, `map` and friends.

    `condition` is the predicate (or the filter of `map`), `result` what `map`, `transformList` and
    `transformMap` collect. With two variables the first is the index or key.
    """

    macro: MacroKind
    source: Expr
    variables: list[Variable]
    condition: Expr | None
    result: Expr | None


class BadExpr(_LocatedExpr):
    """Stands where something could not be read; a problem has been reported for it."""


Expr = (
    Binary
    | BadExpr
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


def iter_children(node: Expr) -> Iterator[Expr]:
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


def split_dotted_name(node: Expr) -> tuple[Identifier, list[str]] | None:
    """The identifier and the fields of `a.b.c`; None for anything else."""
    fields: list[str] = []
    while isinstance(node, Select):
        fields.append(node.field)
        node = node.operand
    if isinstance(node, Identifier):
        fields.reverse()
        return node, fields
    return None
