"""Lists of a policy whose order, or how often an item stands in them, an expression may see."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from policyguard.cel.tree import Binary, Call, Comprehension, Node, children, dotted

_AS_SETS = frozenset({"host_in", "only_runs"})
"""Functions that ask whether a list has something in it."""


def arranged(lists: Iterable[str], trees: Iterable[Node]) -> frozenset[str]:
    """Those of `lists` that one of the expressions takes for more than a set."""
    seen = frozenset(name for tree in trees for name in _seen(tree))
    return frozenset(lists) if _ALL in seen else seen.intersection(lists)


_ALL = ""


def _seen(node: Node) -> Iterator[str]:
    name = _named(node)
    if name is not None:
        yield name
        return
    for below in children(node):
        if not (_as_set(node, below) and _named(below)):
            yield from _seen(below)


def _named(node: Node) -> str | None:
    """The list that a node is; `_ALL` where it is `lists` itself."""
    match dotted(node):
        case (root, fields) if root.name == "lists":
            return fields[0] if fields else _ALL
    return None


def _as_set(node: Node, below: Node) -> bool:
    """Whether a node only asks what is in the list below it."""
    match node:
        case Binary(operator="in", right=right):
            return below is right
        case Call(name=name, receiver=receiver):
            return name in _AS_SETS and below is not receiver
        case Comprehension(macro="all" | "exists", source=source, variables=[_]):
            return below is source
    return False
