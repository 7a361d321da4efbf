"""`query.sql()`: the statements of a SQL text, read by sqlglot (the extra `sql`)."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, Final

from policyguard.cel.errors import OperationError
from policyguard.cel.types.types import BOOL, Type, enum_of, list_of, lower_case_of, record
from policyguard.cel.types.values import no_such_overload
from policyguard.model.diagnostic import did_you_mean
from policyguard.sql.errors import SqlError
from policyguard.sql.verbs import VERBS

LIBRARY: Final = "sqlglot"
STATEMENTS: Final[Type] = list_of(
    record(
        {
            "verb": enum_of("SQL verb", VERBS, "warning"),
            "tables": list_of(lower_case_of("names of tables")),
            "where": BOOL,
            "limited": BOOL,
            "calls": list_of(lower_case_of("names of functions")),
        },
        name="statement",
    )
)
"""The type of `query.sql()`."""
_OTHER_NAMES: Final = {
    "postgresql": "postgres",
    "pg": "postgres",
    "mariadb": "mysql",
    "mssql": "tsql",
    "sqlserver": "tsql",
    "sqlite3": "sqlite",
}
_MAX_CACHED_LENGTH: Final = 4096


class UnknownDialectError(ValueError):
    """A name of no dialect; `help` says what to write."""

    def __init__(self, name: str, known: list[str]) -> None:
        super().__init__(f"unknown SQL dialect `{name}`")
        other = _OTHER_NAMES.get(name.lower())
        similar = f"did you mean `{other}`?" if other else did_you_mean(name, known)
        self.help = similar or f"use one of {', '.join(known)}"


def check_dialect(name: str) -> None:
    """Raise `UnknownDialectError` if sqlglot knows no dialect of that name."""
    try:
        from policyguard.sql.parser import dialect_names
    except ImportError:
        return  # the missing library is a problem of its own
    known = dialect_names()
    if name not in known:
        raise UnknownDialectError(name, known)


def read_sql(query: Any, dialect: str = "") -> list[dict[str, Any]]:
    """`query.sql(dialect)`: what each statement does, also those within others that change data.

    It is an error for SQL that the parser does not know and, without a dialect, for what databases
    read differently.
    """
    if query.__class__ is not str:
        raise no_such_overload("sql", query)
    cached = len(query) <= _MAX_CACHED_LENGTH
    found = (_read_cached if cached else _read)(query, dialect)
    if isinstance(found, str):
        raise OperationError("invalid-argument", found)
    return found


def _read(query: str, dialect: str) -> list[dict[str, Any]] | str:
    """Return the statements, or why they cannot be read."""
    from policyguard.sql.statements import read_statements

    try:
        statements = read_statements(query, dialect)
    except SqlError as error:
        return str(error)
    return [
        {
            "verb": statement.verb,
            "tables": statement.tables,
            "where": statement.where,
            "limited": statement.limited,
            "calls": statement.calls,
        }
        for statement in statements
    ]


_read_cached = lru_cache(maxsize=256)(_read)
"""The rules of a policy ask the same of one query."""
