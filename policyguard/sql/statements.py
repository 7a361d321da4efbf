"""What each statement of a text does: its verb, tables, conditions and the functions it calls."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from policyguard.sql.conditions import selects
from policyguard.sql.errors import SqlError
from policyguard.sql.parser import Expr, ParsedStatement, Table, parse
from policyguard.sql.tables import find_tables
from policyguard.sql.verbs import EXPLAIN, KEYWORD_VERBS, VERB_OF_KIND

_CHANGES = frozenset(("insert", "update", "delete", "merge", "create", "drop", "truncatetable"))
_OPERATORS = frozenset(("and", "or", "xor", "case", "if", "cast", "trycast", "jsoncast", "exists"))
"""What sqlglot counts as functions, and is written as an operator."""
_SQL_RUNNERS = frozenset(
    ("sp_executesql", "sp_sqlexec", "sp_prepexec", "sp_execute_external_script")
)
_STATEMENT_WORDS = frozenset(
    (
        "DELETE",
        "UPDATE",
        "INSERT",
        "MERGE",
        "TRUNCATE",
        "DROP",
        "ALTER",
        "CREATE",
        "GRANT",
        "REVOKE",
    )
).union(
    ("DENY", "EXEC", "EXECUTE", "CALL", "KILL", "SHUTDOWN", "BACKUP", "RESTORE", "DBCC"),
    ("DECLARE", "PRINT", "RECONFIGURE", "BULK", "COMMIT", "ROLLBACK", "RETURN", "GO"),
    ("CHECKPOINT", "REVERT", "SETUSER"),
)
"""Words that begin a statement where it needs no `;` before it, and are no aliases."""


class SqlStatement(msgspec.Struct, frozen=True):
    """One statement of a text.

    `where`: its WHERE selects rows (`1 = 1` does not); `limited`: LIMIT, TOP or FETCH bounds the
    rows; `calls`: the functions and procedures that it calls.
    """

    verb: str
    tables: list[str]
    where: bool
    limited: bool
    calls: list[str]


def read_statements(text: str, dialect: str) -> list[SqlStatement]:
    """Return the statements of `text`, and those within them that change something.

    Raises `SqlError` for what cannot be read for certain.
    """
    found: list[SqlStatement] = []
    try:
        for statement in parse(text, dialect):
            found += _read(statement, text, dialect)
    except RecursionError:
        raise SqlError("text nests too deeply") from None
    return found


def _read(statement: ParsedStatement, text: str, dialect: str) -> Iterator[SqlStatement]:
    tree = statement.tree
    if tree is None:
        yield SqlStatement(statement.keyword, [], where=False, limited=False, calls=[])
        return
    _check(tree)
    verb = _find_verb(tree, statement.keyword)
    outer = _describe(verb, tree, text, dialect)
    if statement.explains:
        yield msgspec.structs.replace(outer, verb=EXPLAIN)
    if statement.explains and not statement.runs:
        return
    yield outer
    for node in tree.walk(bfs=False):
        if node is not tree and node.key in _CHANGES and _is_statement(node):
            yield _describe(VERB_OF_KIND[node.key], node, text, dialect)
        elif node.key == "into" and getattr(node.this, "key", "") == "table":
            tables = find_tables(node, dialect)
            yield SqlStatement("CREATE", tables, where=False, limited=False, calls=[])


def _check(tree: Expr) -> None:
    """Raise `SqlError` for parts that may be anything else than they seem."""
    if tree.key not in VERB_OF_KIND:
        raise SqlError("this kind of statement is not known")
    for node in tree.walk(bfs=False):
        if node.key in ("command", "block", "ifblock", "whileblock"):
            raise SqlError("a part of the statement is not known")
        if node.key == "querytransform":
            raise SqlError("what it runs is not known")
        is_named = node.key == "anonymous" and node.name.upper() == "IDENTIFIER"
        if is_named or node.key == "dynamicidentifier":
            raise SqlError("a name is not known: `IDENTIFIER` makes it of a text")
        if node.key in ("alias", "tablealias"):
            name = node.args.get("alias" if node.key == "alias" else "this")
            if not isinstance(name, Expr) or name.args.get("quoted"):
                continue
            if name.name.upper() in _STATEMENT_WORDS:
                raise SqlError("two statements stand here without `;` between them")


def _find_verb(tree: Expr, keyword: str) -> str:
    if keyword in KEYWORD_VERBS:
        return keyword
    if tree.key == "execute":
        name = tree.this
        known = isinstance(name, Table) and name.this.key == "identifier"
        if not known or name.name.lower() in _SQL_RUNNERS:
            raise SqlError("what it runs is not known")
    if tree.key == "subquery" and tree.this.key == "table":
        return "SELECT"
    return VERB_OF_KIND[tree.key]


def _is_statement(node: Expr) -> bool:
    """Whether a node within a statement is one itself, and no part of MERGE or ALTER."""
    return getattr(node.parent, "key", "") not in ("when", "alter")


def _describe(verb: str, tree: Expr, text: str, dialect: str) -> SqlStatement:
    if tree.key == "execute":
        calls = find_tables(tree, dialect)
        return SqlStatement(verb, [], where=False, limited=False, calls=calls)
    return SqlStatement(
        verb=verb,
        tables=[] if tree.key == "use" else find_tables(tree, dialect),
        where=_has_where(tree),
        limited=_is_limited(tree),
        calls=list(dict.fromkeys(_find_calls(tree, text))),
    )


def _branches(tree: Expr) -> list[Expr]:
    """Return the SELECTs that a query joins with UNION and the like; itself if it is one."""
    found: list[Expr] = []
    pending = [tree]
    while pending:
        node = pending.pop()
        if node.key in ("union", "intersect", "except"):
            pending += [node.this, node.expression]
        elif node.key in ("subquery", "paren"):
            pending.append(node.this)
        else:
            found.append(node)
    return found


def _has_where(tree: Expr) -> bool:
    if tree.key == "insert":
        query = tree.args.get("expression")
        return query is not None and query.key != "values" and _has_where(query)
    return all(
        (where := node.args.get("where")) is not None and selects(where.this)
        for node in _branches(tree)
    )


def _is_limited(tree: Expr) -> bool:
    if _has_limit(tree):
        return True
    if tree.key in ("union", "intersect", "except"):
        return _is_limited(tree.this) and _is_limited(tree.expression)
    if tree.key in ("subquery", "paren"):
        return _is_limited(tree.this)
    return tree.key == "values"


def _has_limit(tree: Expr) -> bool:
    limit = tree.args.get("limit")
    if limit is None or limit.expressions:  # LIMIT 1 BY x
        return False
    options = limit.args.get("limit_options")
    if options is not None and options.args.get("percent"):
        return False
    count = limit.args.get("count") or limit.args.get("expression")
    if count is None:  # FETCH FIRST ROW ONLY
        return bool(limit.key == "fetch")
    count = count.unnest()
    value = count.this if count.key == "cast" else count
    # LIMIT ALL, NULL and, in some databases, -1 are no limits.
    return isinstance(value, Expr) and value.key in ("literal", "parameter", "placeholder")


def _find_calls(tree: Expr, text: str) -> Iterator[str]:
    for node in tree.walk(bfs=False):
        if not hasattr(node, "sql_name") or node.key in _OPERATORS:
            continue
        start, end = node.meta.get("start"), node.meta.get("end")
        if start is not None and end is not None:
            name = text[start : end + 1].strip('"`[]')
        elif node.key == "anonymous":
            name = node.name
        else:
            name = node.sql_name()
        yield ".".join((*_find_schema(node), name)).lower()


def _find_schema(node: Expr) -> list[str]:
    """Return the schema in front of a function's name."""
    parent = node.parent
    if parent is None:
        return []
    if isinstance(parent, Table) and parent.this is node:
        return [part.name for part in parent.parts[:-1]]
    if parent.key == "dot" and parent.expression is node:
        return [part.name for part in parent.this.walk() if part.key == "identifier"]
    return []
