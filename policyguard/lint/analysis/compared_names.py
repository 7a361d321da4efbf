"""Find the names that expressions compare as text."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from policyguard.cel.syntax.ast import (
    Binary,
    Call,
    Comprehension,
    Constant,
    Expr,
    Identifier,
    ListLiteral,
    MapLiteral,
    Select,
    TextSpan,
    iter_children,
)
from policyguard.engines.yaml_tree import Path
from policyguard.lint.analysis.satisfiability import TEXT_FUNCTIONS, value_name
from policyguard.lint.rule import LintContext

SESSION_COUNT = "session.count"
NAME_FIELDS = frozenset({"call.tool", "call.server", "call.agent"})
_LIST_FIELDS = frozenset({"call.targets", "session.roles"})
_FIELDS = (
    NAME_FIELDS | _LIST_FIELDS | {"call.session", "session.agent", "session.id", "session.user"}
)
_CONVERSIONS = frozenset({"lowerAscii", "upperAscii", "trim"})

_Scope = Mapping[str, Expr]
"""The lists that the variables of macros go through."""


class ComparedName(NamedTuple):
    """A text that is compared with a field of the call, or counted by `session.count`.

    `path` is that of the expression. `part` is the function that compares it with a part of the
    field; empty for the whole.
    """

    path: Path
    field: str
    text: str
    span: TextSpan
    part: str = ""


class ListedName(NamedTuple):
    """An item of `lists.NAME`, at `path`, in which an expression looks a field up."""

    path: Path
    text: str
    list: str
    field: str


def find_compared_names(context: LintContext) -> Iterator[ComparedName]:
    """Yield the names in expressions that operators, text functions and `count` compare."""
    for path, tree in context.cel_trees.items():
        for field, node, part in _comparisons(tree, {}):
            text = _text(context, node)
            if text is not None:
                yield ComparedName(path, field, text, node.span, part)


def find_listed_names(context: LintContext) -> Iterator[ListedName]:
    """Yield the items of lists that expressions look a field up in, those of reported files."""
    lookups = {
        (node.field, field)
        for tree in context.cel_trees.values()
        for field, node, part in _comparisons(tree, {})
        if not part and isinstance(node, Select) and value_name(node.operand) == "lists"
    }
    for name, field in sorted(lookups):
        for index, item in enumerate(context.policy.lists.get(name, ())):
            path: Path = ("lists", name, index)
            if context.owns(path):
                yield ListedName(path, str(item), name, field)


def _comparisons(node: Expr, scope: _Scope) -> Iterator[tuple[str, Expr, str]]:
    """Yield each value that is compared with a field, and the function that compares a part."""
    match node:
        case Binary(operator="==" | "!=" | "in", left=left, right=right):
            for one, other in ((left, right), (right, left)):
                if field := _field(one, scope):
                    yield from ((field, item, "") for item in _items(other, scope))
        case Call(name="count", receiver=Identifier(name="session"), arguments=arguments):
            yield from ((SESSION_COUNT, item, "") for item in arguments)
        case Call(name=name, receiver=receiver, arguments=arguments) if receiver is not None:
            if name in TEXT_FUNCTIONS and (field := _field(receiver, scope)):
                yield from ((field, item, name) for item in arguments)
        case Comprehension(source=source, variables=[variable]):
            scope = {**scope, variable.name: source}
    for child in iter_children(node):
        yield from _comparisons(child, scope)


def _field(node: Expr, scope: _Scope) -> str:
    """Return the field that a value is, or is an item of; empty for other values."""
    if isinstance(node, Call) and node.name in _CONVERSIONS and node.receiver is not None:
        return _field(node.receiver, scope)
    if isinstance(node, Identifier) and node.name in scope:
        source = scope[node.name]
        if isinstance(source, ListLiteral) and len(source.items) == 1:
            return _field(source.items[0], {})
        return name if (name := value_name(source)) in _LIST_FIELDS else ""
    return name if (name := value_name(node)) in _FIELDS else ""


def _items(node: Expr, scope: _Scope) -> Iterable[Expr]:
    """Return the elements of a list, the keys of a map, or the value itself."""
    if isinstance(node, Identifier) and node.name in scope:
        node, scope = scope[node.name], {}
    if isinstance(node, ListLiteral):
        return node.items
    return [key for key, _ in node.entries] if isinstance(node, MapLiteral) else (node,)


def _text(context: LintContext, node: Expr) -> str | None:
    """Return the text of a constant or of a param."""
    if isinstance(node, Constant):
        return node.raw_value if isinstance(node.raw_value, str) else None
    if isinstance(node, Select) and value_name(node.operand) == "params":
        param = context.policy.params.get(node.field)
        if param is not None and isinstance(param.value, str):
            return param.value
    return None
