"""The types that an expression is checked against.

CEL's own types (cel-spec langdef.md, "Values"), and three that policies need on top: a *record* is
a JSON object whose fields are known, a *name* is a string out of a closed vocabulary, and both
behave at run time as the map and the string that they are. `dyn` is the type of what is known only
at run time; nothing about it can be wrong at compile time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import reduce
from types import MappingProxyType
from typing import Final

import msgspec

from policyguard.cel.types.uint import Uint

__all__ = [
    "BOOL",
    "BYTES",
    "DOUBLE",
    "DURATION",
    "DYN",
    "INT",
    "LITERAL_TYPES",
    "NULL",
    "NUMBER",
    "NUMERIC_TYPES",
    "STRING",
    "TIMESTAMP",
    "TYPE",
    "UINT",
    "EnumType",
    "ListType",
    "MapType",
    "RecordType",
    "Type",
    "enum_of",
    "is_assignable",
    "is_comparable",
    "join_all_types",
    "join_types",
    "list_of",
    "map_of",
    "record",
    "with_article",
]


class Type(msgspec.Struct, frozen=True):
    """A type without parts. `str()` of it is how messages name it."""

    kind: str

    def __str__(self) -> str:
        return self.kind


class ListType(Type, frozen=True):
    """A list of elements of one type."""

    element: Type

    def __str__(self) -> str:
        return f"list({self.element})"


class MapType(Type, frozen=True):
    """A map from keys of one type to values of one type."""

    key: Type
    value: Type

    def __str__(self) -> str:
        return f"map({self.key}, {self.value})"


class RecordType(Type, frozen=True):
    """A JSON object with known fields.

    Those in `optional` may be absent. Those in `promised` should not be, and nobody has made sure.
    """

    name: str
    fields: Mapping[str, Type]
    optional: frozenset[str]
    unverified: frozenset[str] = frozenset()

    def __hash__(self) -> int:
        return hash((self.name, self.optional, self.unverified))  # a mapping has no hash

    def __str__(self) -> str:
        return self.name or "record"


class EnumType(Type, frozen=True):
    """A string out of a closed vocabulary, such as the classes that a policy defines."""

    vocabulary: str
    members: frozenset[str]

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

NUMERIC_TYPES = frozenset({INT, UINT, DOUBLE})
NUMBER = Type("number")
"""Any of these: what may be asked of an expression, and the type of none."""
LITERAL_TYPES: Final[dict[type, Type]] = {
    type(None): NULL,
    bool: BOOL,
    int: INT,
    Uint: UINT,
    float: DOUBLE,
    str: STRING,
    bytes: BYTES,
}
"""The type of a literal, by the class of its value."""


def list_of(element: Type) -> ListType:
    """A list of `element`s."""
    return ListType("list", element)


def map_of(key: Type, value: Type) -> MapType:
    """A map from `key`s to `value`s; JSON's objects have string keys."""
    return MapType("map", key, value)


def record(
    fields: Mapping[str, Type],
    optional: frozenset[str] = frozenset(),
    name: str = "",
    unverified: frozenset[str] = frozenset(),
) -> RecordType:
    """A JSON object with these fields. `name` is how messages call it.

    A field that it does not have is a compile error; `has()` asks for those in `optional`, and may
    ask for those in `promised`.
    """
    return RecordType("map", name, MappingProxyType(dict(fields)), optional, unverified)


def enum_of(vocabulary: str, members: frozenset[str]) -> EnumType:
    """A string out of `known`. `vocabulary` says what it names, as in "unknown `class`"."""
    return EnumType("string", vocabulary, frozenset(members))


def with_article(kind: Type) -> str:
    """The name of a type with its article, for messages."""
    name = str(kind)
    if name in ("null", "bytes"):
        return name
    return f"{'an' if name[0] in 'aeio' else 'a'} {name}"


def is_assignable(parameter: Type, argument: Type) -> bool:
    """Whether a value of type `argument` may stand where `parameter` is asked for."""
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
    """The type of what is either a `left` or a `right`; `dyn` where they have nothing in common."""
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
    """The type of what is one of `types`; `dyn` where there are none."""
    return reduce(join_types, types) if types else DYN
