"""Lists of a policy whose order, or how often an item stands in them, an expression may see."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from policyguard.cel.syntax.tree import (
    Binary,
    Call,
    Comprehension,
    Expr,
    iter_children,
    split_dotted_name,
)

_MEMBERSHIP_FUNCTIONS = frozenset({"host_in", "only_runs"})
"""Functions that ask whether a list has something in it."""


def order_sensitive_lists(lists: Iterable[str], trees: Iterable[Expr]) -> frozenset[str]:
    """Those of `lists` that one of the expressions takes for more than a set."""
    seen = frozenset(name for tree in trees for name in _order_sensitive_names(tree))
    return frozenset(lists) if _ALL_LISTS in seen else seen.intersection(lists)


_ALL_LISTS = ""


def _order_sensitive_names(node: Expr) -> Iterator[str]:
    name = _list_name(node)
    if name is not None:
        yield name
        return
    for below in iter_children(node):
        if not (_is_membership_test(node, below) and _list_name(below)):
            yield from _order_sensitive_names(below)


def _list_name(node: Expr) -> str | None:
    """The list that a node is; `_ALL` where it is `lists` itself."""
    match split_dotted_name(node):
        case (root, fields) if root.name == "lists":
            return fields[0] if fields else _ALL_LISTS
    return None


def _is_membership_test(node: Expr, below: Expr) -> bool:
    """Whether a node only asks what is in the list below it."""
    match node:
        case Binary(operator="in", right=right):
            return below is right
        case Call(name=name, receiver=receiver):
            return name in _MEMBERSHIP_FUNCTIONS and below is not receiver
        case Comprehension(macro="all" | "exists", source=source, variables=[_]):
            return below is source
    return False
