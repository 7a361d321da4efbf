"""The way in and out in plain Python: types by name, datetimes in, plain values out.

Inside, unsigned integers, timestamps and durations have classes of their own (`1u` is not `1`, and
times are exact to the nanosecond). Who calls a `Program` by name need not know them.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from types import UnionType
from typing import Any

from policyguard.cel.declarations import Declarations
from policyguard.cel.errors import CelLimitError
from policyguard.cel.types.times import Duration, Timestamp
from policyguard.cel.types.types import (
    BOOL,
    BYTES,
    DOUBLE,
    DURATION,
    DYN,
    INT,
    NULL,
    STRING,
    TIMESTAMP,
    TYPE,
    UINT,
    ListType,
    MapType,
    RecordType,
    Type,
    list_of,
    map_of,
    record,
)
from policyguard.cel.types.uint import Uint
from policyguard.cel.types.values import TypeValue

__all__ = ["TypeSpec", "from_cel", "to_cel", "to_declarations"]

TypeSpec = Type | str | Mapping[str, Any]
"""A type: an object of `types`, its name (`list(string)`), or a mapping of a record's fields."""

_NAMED_TYPES = {
    str(simple): simple
    for simple in (
        BOOL, BYTES, DOUBLE, DURATION, DYN, INT, NULL, STRING, TIMESTAMP, TYPE, UINT,
    )
}  # fmt: skip
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MAX_RESULT_DEPTH = 256
"""Levels that a result may nest, so that walking it cannot run out of stack."""


def to_declarations(declarations: Declarations | Mapping[str, TypeSpec]) -> Declarations:
    """Declarations out of `{"x": "int", "call": {"tool": "string", "args": "dyn"}}`.

    `ValueError` for a name that is no type, `TypeError` for what is no name. In a record a field
    whose name ends in `?` may be absent.
    """
    if isinstance(declarations, Declarations):
        return declarations
    require_type("declarations", declarations, Mapping, "a mapping of names to types")
    return Declarations({name: _parse_type(named, name) for name, named in declarations.items()})


def require_type(name: str, value: object, kind: type | UnionType, wanted: str) -> None:
    """`TypeError` where a program gives something else than what is wanted as `name`."""
    if not isinstance(value, kind):
        raise TypeError(f"`{name}` is of type `{type(value).__name__}`, not {wanted}")


def _parse_type(named: TypeSpec, name: str) -> Type:
    if isinstance(named, Type):
        return named
    if isinstance(named, Mapping):
        fields = {field.removesuffix("?"): _parse_type(of, field) for field, of in named.items()}
        optional = frozenset(field[:-1] for field in named if field.endswith("?"))
        return record(fields, optional, name)
    require_type(f"declarations: {name}", named, str, "the name of a type")
    text = named.strip()
    if text in _NAMED_TYPES:
        return _NAMED_TYPES[text]
    outer, opened, rest = text.partition("(")
    if opened and rest.endswith(")"):
        parts = _split_parameters(rest[:-1])
        if outer.strip() == "list" and len(parts) == 1:
            return list_of(_parse_type(parts[0], name))
        if outer.strip() == "map" and len(parts) == 2:
            return map_of(_parse_type(parts[0], name), _parse_type(parts[1], name))
    known = ", ".join(sorted(_NAMED_TYPES))
    raise ValueError(f"`{named}` is no type; types are {known}, list(T), map(K, V)")


def _split_parameters(text: str) -> list[str]:
    """The parts between the commas that stand outside of all parentheses."""
    parts, depth, begun = [], 0, 0
    for place, character in enumerate(text):
        depth += {"(": 1, ")": -1}.get(character, 0)
        if character == "," and not depth:
            parts.append(text[begun:place])
            begun = place + 1
    return [*parts, text[begun:]]


def to_cel(value: Any, declared: Type) -> Any:
    """A plain value as expressions see it, as its declared type says."""
    kind = value.__class__
    if isinstance(value, datetime):
        aware = value if value.tzinfo is not None else value.replace(tzinfo=UTC)
        return Timestamp.from_ns(_nanoseconds(aware - _EPOCH))
    if isinstance(value, timedelta):
        return Duration.from_ns(_nanoseconds(value))
    if declared is UINT and kind is int:
        return Uint(value)
    if not _needs_conversion(declared):
        return value
    if isinstance(declared, ListType) and isinstance(value, (list, tuple)):
        return [to_cel(item, declared.element) for item in value]
    if isinstance(declared, MapType) and isinstance(value, Mapping):
        return {
            to_cel(key, declared.key): to_cel(item, declared.value) for key, item in value.items()
        }
    if isinstance(declared, RecordType) and isinstance(value, Mapping):
        fields = declared.fields
        return {key: to_cel(item, fields.get(key, DYN)) for key, item in value.items()}
    return value


def _needs_conversion(declared: Type) -> bool:
    """Whether plain values of a type are not what expressions see."""
    if isinstance(declared, ListType):
        return _needs_conversion(declared.element)
    if isinstance(declared, MapType):
        return _needs_conversion(declared.key) or _needs_conversion(declared.value)
    if isinstance(declared, RecordType):
        return any(map(_needs_conversion, declared.fields.values()))
    return declared in (UINT, TIMESTAMP, DURATION)


def _nanoseconds(span: timedelta) -> int:
    return (span.days * 86_400 + span.seconds) * 1_000_000_000 + span.microseconds * 1000


def from_cel(value: Any, depth: int = 0) -> Any:
    """A result in plain Python. Times are cut to the microsecond; a type becomes its name."""
    if isinstance(value, Uint):
        return int(value)
    if isinstance(value, Timestamp):
        return _EPOCH + timedelta(microseconds=value.ns // 1000)
    if isinstance(value, Duration):
        return timedelta(microseconds=value.ns // 1000)
    if isinstance(value, TypeValue):
        return str(value)
    if not isinstance(value, (list, tuple, dict)):
        return value
    if depth > MAX_RESULT_DEPTH:
        raise CelLimitError(
            "limit-depth", f"the result nests deeper than {MAX_RESULT_DEPTH} levels"
        )
    if isinstance(value, dict):
        return {from_cel(key): from_cel(item, depth + 1) for key, item in value.items()}
    return [from_cel(item, depth + 1) for item in value]
