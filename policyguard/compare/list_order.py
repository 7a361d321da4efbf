"""Find the lists whose order or duplicates an expression can observe."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from policyguard.cel.syntax.ast import (
    Binary,
    Call,
    Comprehension,
    Expr,
    iter_children,
    split_dotted_name,
)

_MEMBERSHIP_FUNCTIONS = frozenset({"host_in", "only_runs"})
"""Functions that test membership in a list."""


def order_sensitive_lists(lists: Iterable[str], trees: Iterable[Expr]) -> frozenset[str]:
    """Return the lists that an expression uses as more than a set."""
    seen = frozenset(name for tree in trees for name in _order_sensitive_names(tree))
    return frozenset(lists) if _ALL_LISTS in seen else seen.intersection(lists)


_ALL_LISTS = ""


def _order_sensitive_names(node: Expr) -> Iterator[str]:
    name = _list_name(node)
    if name is not None:
        yield name
        return
    for child in iter_children(node):
        if not (_is_membership_test(node, child) and _list_name(child)):
            yield from _order_sensitive_names(child)


def _list_name(node: Expr) -> str | None:
    """Return the list a node names, or `_ALL_LISTS` for `lists` itself."""
    match split_dotted_name(node):
        case (root, fields) if root.name == "lists":
            return fields[0] if fields else _ALL_LISTS
    return None


def _is_membership_test(node: Expr, child: Expr) -> bool:
    """Return whether a node only tests membership in its child list."""
    match node:
        case Binary(operator="in", right=right):
            return child is right
        case Call(name=name, receiver=receiver):
            return name in _MEMBERSHIP_FUNCTIONS and child is not receiver
        case Comprehension(macro="all" | "exists", source=source, variables=[_]):
            return child is source
    return False
