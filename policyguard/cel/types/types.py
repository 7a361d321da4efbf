"""The types that expressions are checked against.

CEL's own types (cel-spec langdef.md, "Values"), and two for policies: a *record* is a JSON object
with known fields, an *enum* a string from a closed vocabulary. At run time they are a map and a
string. `dyn` is the type of a value known only at run time; it passes every check.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import reduce
from types import MappingProxyType
from typing import Final, Literal

import msgspec

from policyguard.cel.types.uint import Uint


class Type(msgspec.Struct, frozen=True):
    """A type without parameters. Messages show its `str()`."""

    kind: str

    def __str__(self) -> str:
        return self.kind


class ListType(Type, frozen=True):
    """A list whose elements have one type."""

    element: Type

    def __str__(self) -> str:
        return f"list({self.element})"


class MapType(Type, frozen=True):
    """A map with keys of one type and values of one type."""

    key: Type
    value: Type

    def __str__(self) -> str:
        return f"map({self.key}, {self.value})"


class RecordType(Type, frozen=True):
    """A JSON object with known fields.

    Fields in `optional` may be absent. Fields in `unverified` should be present, but nothing
    verifies it.
    """

    name: str
    fields: Mapping[str, Type]
    optional: frozenset[str]
    unverified: frozenset[str] = frozenset()

    def __hash__(self) -> int:
        return hash((self.name, self.optional, self.unverified))  # a mapping has no hash

    def __str__(self) -> str:
        return self.name or "record"


class LowerCaseType(Type, frozen=True):
    """A string without capital letters, such as the name of a table: `names` says of what."""

    names: str

    def __str__(self) -> str:
        return "string"


class EnumType(Type, frozen=True):
    """A string from a vocabulary, such as the classes that a policy defines.

    `severity` is that of comparing it with another string.
    """

    vocabulary: str
    members: frozenset[str]
    severity: Literal["error", "warning"] = "error"

    def __str__(self) -> str:
        return "string"


BOOL = Type("bool")
INT = Type("int")
UINT = Type("uint")
DOUBLE = Type("double")
STRING = Type("string")
BYTES = Type("bytes")
NULL = Type("null")
DYN = Type("dyn")
TIMESTAMP = Type("timestamp")
DURATION = Type("duration")
TYPE = Type("type")
SIMPLE_TYPES = {
    simple.kind: simple
    for simple in (BOOL, INT, UINT, DOUBLE, STRING, BYTES, NULL, DYN, TIMESTAMP, DURATION, TYPE)
}
"""The types without parameters, by name."""

NUMERIC_TYPES = frozenset({INT, UINT, DOUBLE})
NUMBER = Type("number")
"""Any numeric type: a type to expect of an expression, never the type of one."""
LITERAL_TYPES: Final[dict[type, Type]] = {
    type(None): NULL,
    bool: BOOL,
    int: INT,
    Uint: UINT,
    float: DOUBLE,
    str: STRING,
    bytes: BYTES,
}
"""The type of a literal by the class of its value."""


def list_of(element: Type) -> ListType:
    """Return the type of a list of `element`s."""
    return ListType("list", element)


def map_of(key: Type, value: Type) -> MapType:
    """Return the type of a map from `key`s to `value`s; JSON objects have string keys."""
    return MapType("map", key, value)


def record(
    fields: Mapping[str, Type],
    optional: frozenset[str] = frozenset(),
    name: str = "",
    unverified: frozenset[str] = frozenset(),
) -> RecordType:
    """Return the type of a JSON object with these fields; messages call it `name`.

    Any other field is a compile error. `has()` is required for fields in `optional`, and allowed
    for those in `unverified`.
    """
    return RecordType("map", name, MappingProxyType(dict(fields)), optional, unverified)


def lower_case_of(names: str) -> LowerCaseType:
    """Return the type of a string without capital letters; `names` says what it holds."""
    return LowerCaseType("string", names)


def enum_of(
    vocabulary: str, members: frozenset[str], severity: Literal["error", "warning"] = "error"
) -> EnumType:
    """Return the type of a string in `members`; `vocabulary` names it, as in "unknown `class`"."""
    return EnumType("string", vocabulary, frozenset(members), severity)


def with_article(kind: Type) -> str:
    """Return the name of a type with its article, for messages."""
    name = str(kind)
    if name in ("null", "bytes"):
        return name
    return f"{'an' if name[0] in 'aeio' else 'a'} {name}"


def is_assignable(parameter: Type, argument: Type) -> bool:
    """Whether a value of type `argument` is accepted for `parameter`."""
    if DYN in (parameter, argument):
        return True
    if parameter == NUMBER:
        return argument in NUMERIC_TYPES
    if parameter.kind != argument.kind:
        return False
    if isinstance(parameter, ListType) and isinstance(argument, ListType):
        return is_assignable(parameter.element, argument.element)
    if isinstance(parameter, MapType) and isinstance(argument, MapType):
        return is_assignable(parameter.key, argument.key) and is_assignable(
            parameter.value, argument.value
        )
    return True


def is_comparable(left: Type, right: Type) -> bool:
    """Whether values of the two types can ever be equal.

    Numbers of all three types compare by value (cel-spec langdef.md, "Numbers": `1 == 1.0`).
    """
    if DYN in (left, right) or (left in NUMERIC_TYPES and right in NUMERIC_TYPES):
        return True
    if left.kind != right.kind:
        return False
    if isinstance(left, ListType) and isinstance(right, ListType):
        return is_comparable(left.element, right.element)
    if isinstance(left, MapType) and isinstance(right, MapType):
        return is_comparable(left.key, right.key) and is_comparable(left.value, right.value)
    return True


def join_types(left: Type, right: Type) -> Type:
    """Return the type of a value that is a `left` or a `right`; `dyn` if they disagree."""
    if left == right:
        return left
    if isinstance(left, ListType) and isinstance(right, ListType):
        return list_of(join_types(left.element, right.element))
    if isinstance(left, MapType) and isinstance(right, MapType):
        return map_of(join_types(left.key, right.key), join_types(left.value, right.value))
    if left.kind == right.kind == "string":
        return STRING
    return DYN


def join_all_types(types: Sequence[Type]) -> Type:
    """Return the type of a value that has one of `types`; `dyn` for none."""
    return reduce(join_types, types) if types else DYN
