"""Conversion between plain Python and CEL: type names, datetimes, results.

CEL values include classes of their own: `Uint`, because `1u` is not `1`, and `Timestamp` and
`Duration`, which are exact to the nanosecond. Callers of a `Program` need not know them.
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
    DURATION,
    DYN,
    SIMPLE_TYPES,
    TIMESTAMP,
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

TypeSpec = Type | str | Mapping[str, Any]
"""A `Type`, its name (`list(string)`), or a mapping of a record's fields."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MAX_RESULT_DEPTH = 256
"""Nesting levels of a result, so that converting it cannot exhaust the stack."""


def to_declarations(declarations: Declarations | Mapping[str, TypeSpec]) -> Declarations:
    """Convert `{"x": "int", "call": {"tool": "string", "args": "dyn"}}` to declarations.

    In a record, a field whose name ends in `?` may be absent. Raises `ValueError` for an unknown
    type name and `TypeError` for an argument of the wrong Python type.
    """
    if isinstance(declarations, Declarations):
        return declarations
    require_type("declarations", declarations, Mapping, "a mapping of names to types")
    return Declarations({name: _parse_type(spec, name) for name, spec in declarations.items()})


def require_type(name: str, value: object, kind: type | UnionType, expected: str) -> None:
    """Raise `TypeError` unless `value`, the argument `name`, is an instance of `kind`."""
    if not isinstance(value, kind):
        raise TypeError(f"`{name}` must be {expected}, not `{type(value).__name__}`")


def _parse_type(spec: TypeSpec, name: str) -> Type:
    if isinstance(spec, Type):
        return spec
    if isinstance(spec, Mapping):
        fields = {key.removesuffix("?"): _parse_type(value, key) for key, value in spec.items()}
        optional = frozenset(key[:-1] for key in spec if key.endswith("?"))
        return record(fields, optional, name)
    require_type(f"declarations: {name}", spec, str, "a type name")
    text = spec.strip()
    if text in SIMPLE_TYPES:
        return SIMPLE_TYPES[text]
    outer, parenthesis, rest = text.partition("(")
    if parenthesis and rest.endswith(")"):
        parameters = _split_parameters(rest[:-1])
        if outer.strip() == "list" and len(parameters) == 1:
            return list_of(_parse_type(parameters[0], name))
        if outer.strip() == "map" and len(parameters) == 2:
            return map_of(_parse_type(parameters[0], name), _parse_type(parameters[1], name))
    known = ", ".join(sorted(SIMPLE_TYPES))
    raise ValueError(f"unknown type `{spec}`; use {known}, list(T) or map(K, V)")


def _split_parameters(text: str) -> list[str]:
    """Split at the commas outside all parentheses."""
    parts, depth, start = [], 0, 0
    for index, character in enumerate(text):
        depth += {"(": 1, ")": -1}.get(character, 0)
        if character == "," and not depth:
            parts.append(text[start:index])
            start = index + 1
    return [*parts, text[start:]]


def to_cel(value: Any, declared: Type) -> Any:
    """Convert a plain value to the CEL value of its declared type."""
    if isinstance(value, datetime):
        aware = value if value.tzinfo is not None else value.replace(tzinfo=UTC)
        return Timestamp.from_ns(_nanoseconds(aware - _EPOCH))
    if isinstance(value, timedelta):
        return Duration.from_ns(_nanoseconds(value))
    if declared is UINT and value.__class__ is int:
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
    """Whether plain values of a type differ from its CEL values."""
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
    """Convert a result to plain Python: times to the microsecond, a type to its name."""
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
    if depth >= MAX_RESULT_DEPTH:
        raise CelLimitError(
            "limit-depth", f"the result nests deeper than {MAX_RESULT_DEPTH} levels"
        )
    if isinstance(value, dict):
        return {from_cel(key): from_cel(item, depth + 1) for key, item in value.items()}
    return [from_cel(item, depth + 1) for item in value]
