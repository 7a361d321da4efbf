"""Find the names that expressions compare as text."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from policyguard.cel.syntax.ast import (
    Binary,
    Call,
    Constant,
    Expr,
    Identifier,
    ListLiteral,
    MapLiteral,
    Select,
    TextSpan,
    iter_children,
)
from policyguard.lint.analysis.satisfiability import value_name

SESSION_COUNT = "session.count"
_FIELDS = frozenset({"call.tool", "call.server", "call.agent"})
_PART_FUNCTIONS = frozenset({"startsWith", "endsWith", "contains", "matches"})


class ComparedName(NamedTuple):
    """A text that is compared with a field of the call, or counted by `session.count`.

    `part` is the function that compares it with a part of the field; empty for the whole.
    """

    field: str
    text: str
    span: TextSpan
    part: str = ""


def find_compared_names(node: Expr) -> Iterator[ComparedName]:
    """Yield the names in an expression that operators, text functions and `count` compare."""
    match node:
        case Binary(operator="==" | "!=" | "in", left=left, right=right):
            for one, other in ((left, right), (right, left)):
                field = value_name(one)
                if field in _FIELDS:
                    yield from _texts(field, _items(other))
        case Call(name="count", receiver=Identifier(name="session"), arguments=arguments):
            yield from _texts(SESSION_COUNT, arguments)
        case Call(name=name, receiver=receiver, arguments=arguments) if receiver is not None:
            if name in _PART_FUNCTIONS and value_name(receiver) in _FIELDS:
                yield from _texts(value_name(receiver), arguments, name)
    for child in iter_children(node):
        yield from find_compared_names(child)


def find_compared_lists(node: Expr) -> Iterator[tuple[str, str]]:
    """Yield the name of each list that an expression looks a name up in, and the name's field."""
    match node:
        case Binary(
            operator="in", left=left, right=Select(operand=Identifier(name="lists"), field=name)
        ) if value_name(left) in _FIELDS:
            yield name, value_name(left)
    for child in iter_children(node):
        yield from find_compared_lists(child)


def _items(node: Expr) -> Iterable[Expr]:
    """Return the elements of a list, the keys of a map, or the value itself."""
    if isinstance(node, ListLiteral):
        return node.items
    return [key for key, _ in node.entries] if isinstance(node, MapLiteral) else (node,)


def _texts(field: str, nodes: Iterable[Expr], part: str = "") -> Iterator[ComparedName]:
    for node in nodes:
        if isinstance(node, Constant) and isinstance(node.raw_value, str):
            yield ComparedName(field, node.raw_value, node.span, part)
