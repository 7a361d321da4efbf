"""The tables that a statement names, without those that its WITH defines."""

from __future__ import annotations

from collections.abc import Sequence

from policyguard.sql.errors import SqlError
from policyguard.sql.parser import Column, Expr, Table

_RECURSIVE = frozenset(("tsql", "fabric", "oracle", "teradata", "exasol"))
"""Dialects in which a definition of WITH may name itself without RECURSIVE."""
_READ_BY_IN = frozenset(("", "clickhouse", "sqlite"))
"""Dialects in which `x IN name` reads a table."""
_TARGETS = frozenset(("insert", "update", "delete", "merge", "truncatetable", "drop", "alter"))


def find_tables(tree: Expr, dialect: str) -> list[str]:
    """Return the names in lower case, qualified as written; raise `SqlError` for one unknown."""
    names: dict[str, None] = {}
    for node in tree.walk(bfs=False):
        if node.key == "tablefromrows" and node.this.key in ("literal", "parameter"):
            raise SqlError("the name of a table is not known")
        if node.key == "in" and dialect in _READ_BY_IN:
            queried = node.args.get("field")
            if isinstance(queried, Column):
                names[_join(queried.parts)] = None
        if not isinstance(node, Table):
            continue
        parts = node.parts
        last = parts[-1] if parts else None
        if last is None or last.key in ("placeholder", "parameter"):
            raise SqlError("the name of a table is not known")
        if last.key not in ("identifier", "literal", "var"):
            continue  # a function that returns a table
        if not (len(parts) == 1 and _is_defined(node, dialect)):
            names[_join(parts)] = None
    return list(names)


def _join(parts: Sequence[Expr]) -> str:
    return ".".join(part.name for part in parts).lower()


def _is_defined(table: Expr, dialect: str) -> bool:
    """Whether a WITH around the table defines its name, where the table stands."""
    parent = table.parent
    if parent is not None and parent.key in _TARGETS and parent.args.get("this") is table:
        return False
    name = _name(table.this)
    child, node = table, table.parent
    definition: Expr | None = None
    while node is not None:
        if node.key == "cte":
            definition = node
        with_ = node.args.get("with_")
        if with_ is not None:
            is_recursive = bool(with_.args.get("recursive")) or dialect in _RECURSIVE
            visible = _visible(with_, definition if child is with_ else None, is_recursive)
            if name in visible:
                return True
        child, node = node, node.parent
    return False


def _visible(with_: Expr, inside: Expr | None, is_recursive: bool) -> set[object]:
    """Return the names that `inside`, a definition of `with_`, may use; None: the query behind."""
    names: set[object] = set()
    for definition in with_.expressions:
        if definition is inside and not is_recursive:
            break
        names.add(_name(definition.args["alias"].this))
        if definition is inside:
            break
    return names


def _name(identifier: Expr) -> tuple[bool, str]:
    """Return a name so that only those are equal that are the same to every database."""
    quoted = bool(identifier.args.get("quoted"))
    return quoted, identifier.name if quoted else identifier.name.lower()
