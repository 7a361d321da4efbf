"""The tables that a statement names, without those that its WITH defines."""

from __future__ import annotations

from collections.abc import Sequence

from policyguard.sql.errors import SqlError
from policyguard.sql.parser import Column, Expr, Table

_RECURSIVE = frozenset(("tsql", "fabric", "oracle", "teradata", "exasol"))
"""Dialects in which a definition of WITH may name itself without RECURSIVE."""
_READ_BY_IN = frozenset(("", "clickhouse", "sqlite"))
"""Dialects in which `x IN name` reads a table."""
_UNKNOWN_NAME = "the name of a table is not known"
_TARGETS = frozenset(("insert", "update", "delete", "merge", "truncatetable", "drop", "alter"))


def find_tables(tree: Expr, dialect: str) -> list[str]:
    """Return the names in lower case, qualified as written; raise `SqlError` for one unknown."""
    names: dict[str, None] = {}
    for node in tree.walk(bfs=False):
        if not isinstance(node, Table):
            if found := _find_other(node, dialect):
                names[_join(found)] = None
            continue
        parts = node.parts
        last = parts[-1] if parts else None
        if last is None or last.key in ("placeholder", "parameter"):
            raise SqlError(_UNKNOWN_NAME)
        if last.name.lower() == "only" and not last.args.get("quoted"):
            raise SqlError(
                "`ONLY` is read for some databases alone; name the dialect, as `sql('postgres')`"
            )
        if last.key not in ("identifier", "literal", "var"):
            continue  # a function that returns a table
        if not (len(parts) == 1 and _is_defined(node, dialect)):
            names[_join(parts)] = None
    return list(names)


def _find_other(node: Expr, dialect: str) -> Sequence[Expr]:
    """Return the parts of a table's name where the parser sees none: in `x IN name`, `APPLY name`.

    `TABLE(name)`, as an argument of a function, is another.
    """
    named: object = None
    if node.key == "in" and dialect in _READ_BY_IN:
        named = node.args.get("field")
    elif node.key == "lateral":
        named = node.this
    elif node.key == "tablefromrows":
        named = node.this
        if node.this.key in ("literal", "parameter"):
            raise SqlError(_UNKNOWN_NAME)
    elif node.key == "anonymous" and node.name.upper() == "TABLE" and dialect != "oracle":
        named = next(iter(node.expressions), None)
    if not isinstance(named, Expr):
        return ()
    parts = [named]
    if isinstance(named, Column):
        parts = named.parts
    elif named.key == "dot":
        parts = list(named.flatten())
    return parts if all(part.key == "identifier" for part in parts) else ()


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
