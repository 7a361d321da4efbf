"""Which rows of recordings are read: a condition over columns.

Columns are those of a Parquet file, and the `name=value` folders that a file is in. What the
folders decide needs no file to be opened; the rest is left to the reader of the file.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import msgspec

Value = str | int | float | bool | datetime
COMPARE: dict[str, Callable[[Any, Any], bool]] = {
    "==": lambda left, right: bool(left == right),
    "!=": lambda left, right: bool(left != right),
    "<": lambda left, right: bool(left < right),
    "<=": lambda left, right: bool(left <= right),
    ">": lambda left, right: bool(left > right),
    ">=": lambda left, right: bool(left >= right),
}


class Comparison(msgspec.Struct, frozen=True):
    """`column operator value`."""

    column: str
    operator: str
    value: Value


class OneOf(msgspec.Struct, frozen=True):
    """`column in [values]`."""

    column: str
    values: tuple[Value, ...]


class Not(msgspec.Struct, frozen=True):
    """`!condition`."""

    condition: Condition


class AllOf(msgspec.Struct, frozen=True):
    """All conditions hold."""

    conditions: tuple[Condition, ...]


class AnyOf(msgspec.Struct, frozen=True):
    """One of the conditions holds."""

    conditions: tuple[Condition, ...]


Condition = Comparison | OneOf | Not | AllOf | AnyOf | bool


class Rows(msgspec.Struct, frozen=True):
    """Which rows are read, and what the columns of other schemas are, by field.

    `count` is called with the bytes that are read of a file.
    """

    condition: Condition = True
    columns: Mapping[str, str] = {}
    count: Callable[[int], None] | None = None


ALL_ROWS = Rows()


def simplify(condition: Condition, known: Mapping[str, str]) -> Condition:
    """Return the condition with what is known put in: a bool where that decides it."""
    match condition:
        case Comparison(column, operator, value) if column in known:
            return COMPARE[operator](*_alike(known[column], value))
        case OneOf(column, values) if column in known:
            return any(left == right for left, right in (_alike(known[column], v) for v in values))
        case Not(inner):
            inner = simplify(inner, known)
            return not inner if isinstance(inner, bool) else Not(inner)
        case AllOf(conditions) | AnyOf(conditions):
            decides = isinstance(condition, AnyOf)  # which value of one decides the whole
            left = [simplify(one, known) for one in conditions]
            if decides in left:
                return decides
            rest = tuple(one for one in left if not isinstance(one, bool))
            return type(condition)(rest) if rest else not decides
    return condition


def find_columns(condition: Condition) -> set[str]:
    """Return the columns that a condition reads."""
    match condition:
        case Comparison(column) | OneOf(column):
            return {column}
        case Not(inner):
            return find_columns(inner)
        case AllOf(conditions) | AnyOf(conditions):
            return set().union(*map(find_columns, conditions))
    return set()


def partitions_of(path: Path) -> dict[str, str]:
    """Return the values in the names of the folders of a file: `date=2026-01-01/agent=a`."""
    pairs = (part.partition("=") for part in path.parts[:-1])
    return {name: unquote(value) for name, is_pair, value in pairs if is_pair and name}


def parse_time(text: str) -> datetime:
    """Parse a time in ISO 8601; one without a zone is UTC. Raises `ValueError`."""
    time = datetime.fromisoformat(text)
    return time if time.tzinfo else time.replace(tzinfo=UTC)


def _alike(text: str, value: Value) -> tuple[Value, Value]:
    """Return a folder's value, of the type of what it is compared with."""
    try:
        if isinstance(value, bool):
            return text.lower() == "true", value
        if isinstance(value, int | float):
            return float(text), float(value)
        if isinstance(value, datetime):
            return parse_time(text), value
    except ValueError:
        return text, str(value)
    return text, value
