"""The syntax tree.

Every node has the span of its source, for messages. Macros are expanded (`Has`, `Comprehension`),
chains of `&&` and `||` are flat, and parentheses are gone. Nodes compare by identity, so that the
checker can attach results to them.

The tree is plain data that msgspec encodes: a cached policy is not parsed again. A decoded tree is
not trusted: `check` and `codegen` must be safe for any node of a valid type.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any
from typing import Literal as OneOf

import msgspec

from policyguard.cel.syntax.macros import MacroKind
from policyguard.cel.types.uint import Uint

Operator = OneOf["<", "<=", ">", ">=", "==", "!=", "in", "+", "-", "*", "/", "%"]


class TextSpan(msgspec.Struct, frozen=True, array_like=True):
    """A range of the source: code points `start` up to `end`."""

    start: int
    end: int


Report = Callable[[str, str, TextSpan, str | None], None]
"""Receives a problem: its code, message, span, and help or None."""


class _LocatedExpr(msgspec.Struct, eq=False, array_like=True, tag=True):
    """A node with its span."""

    span: TextSpan


class Constant(_LocatedExpr):
    """A literal: null, a bool, a number, a string or bytes; a `Uint` if `unsigned`."""

    raw_value: Any  # msgspec has no union of str and bytes; the checker rejects other classes
    unsigned: bool = False

    @property
    def value(self) -> bool | int | float | str | bytes | None:
        """The value that the literal denotes."""
        return Uint(self.raw_value) if self.unsigned else self.raw_value


class Identifier(_LocatedExpr):
    """A name. `absolute` means a leading dot."""

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
    """A variable that a macro binds in its body."""

    name: str
    span: TextSpan


class Comprehension(_LocatedExpr):
    """A macro over a list or map: `all`, `exists`, `exists_one`, `filter`, `map` and variants.

    `condition` is the predicate (or the filter of `map`), `result` the element that `map`,
    `transformList` and `transformMap` collect. With two variables the first is the index or key.
    """

    macro: MacroKind
    source: Expr
    variables: list[Variable]
    condition: Expr | None
    result: Expr | None


class BadExpr(_LocatedExpr):
    """A placeholder for unreadable source, whose problem has been reported."""


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
"""Any node."""


def iter_tree(node: Expr) -> Iterator[Expr]:
    """Yield `node` and all nodes below it in source order."""
    yield node
    for child in iter_children(node):
        yield from iter_tree(child)


def iter_children(node: Expr) -> Iterator[Expr]:
    """Yield the direct children of `node` in source order."""
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
    """Split `a.b.c` into its identifier and fields; return None for anything else."""
    fields: list[str] = []
    while isinstance(node, Select):
        fields.append(node.field)
        node = node.operand
    if isinstance(node, Identifier):
        fields.reverse()
        return node, fields
    return None
