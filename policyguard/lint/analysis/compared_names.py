"""Find the names that expressions compare as exact text."""

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
    TextSpan,
    iter_children,
)
from policyguard.lint.analysis.satisfiability import value_name

SESSION_COUNT = "session.count"
_FIELDS = frozenset({"call.tool", "call.server", "call.agent"})


class ComparedName(NamedTuple):
    """A text that is compared with a field of the call, or counted by `session.count`."""

    field: str
    text: str
    span: TextSpan


def find_compared_names(node: Expr) -> Iterator[ComparedName]:
    """Yield the names in an expression that `==`, `!=`, `in` and `session.count` compare."""
    match node:
        case Binary(operator="==" | "!=" | "in", left=left, right=right):
            for one, other in ((left, right), (right, left)):
                field = value_name(one)
                if field in _FIELDS:
                    items = other.items if isinstance(other, ListLiteral) else (other,)
                    yield from _texts(field, items)
        case Call(name="count", receiver=Identifier(name="session"), arguments=arguments):
            yield from _texts(SESSION_COUNT, arguments)
    for child in iter_children(node):
        yield from find_compared_names(child)


def _texts(field: str, nodes: Iterable[Expr]) -> Iterator[ComparedName]:
    for node in nodes:
        if isinstance(node, Constant) and isinstance(node.raw_value, str):
            yield ComparedName(field, node.raw_value, node.span)
