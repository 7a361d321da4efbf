"""The CEL type of a Python value, its name in messages, and the error for a wrong one."""

from __future__ import annotations

from typing import Any, Final

from policyguard.cel.errors import OperationError
from policyguard.cel.types.times import Duration, Timestamp
from policyguard.cel.types.uint import Uint


class TypeValue:
    """A type as a value, such as `type(1)`. One object per type, compared by identity.

    `str()` is its name, as in `google.protobuf.Timestamp`.
    """

    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        self.name: Final = name

    def __repr__(self) -> str:
        return f"TypeValue({self.name!r})"

    def __str__(self) -> str:
        return self.name


_INT = TypeValue("int")
_LIST = TypeValue("list")
_TYPE_BY_CLASS: Final[dict[type, TypeValue]] = {
    type(None): TypeValue("null_type"),
    bool: TypeValue("bool"),
    int: _INT,
    Uint: TypeValue("uint"),
    float: TypeValue("double"),
    str: TypeValue("string"),
    bytes: TypeValue("bytes"),
    list: _LIST,
    tuple: _LIST,
    dict: TypeValue("map"),
    Timestamp: TypeValue("google.protobuf.Timestamp"),
    Duration: TypeValue("google.protobuf.Duration"),
    TypeValue: TypeValue("type"),
}
TYPE_VALUES: Final = {value.name: value for value in _TYPE_BY_CLASS.values()}
"""Type values by the name that expressions use: `type(x) == int`."""

_SHORT_NAMES: Final = {
    "null_type": "null",
    "google.protobuf.Timestamp": "timestamp",
    "google.protobuf.Duration": "duration",
}


def type_of(value: Any) -> TypeValue:
    """`type(value)`."""
    type_value = _TYPE_BY_CLASS.get(value.__class__)
    if type_value is None:
        raise OperationError("no-such-overload", f"{describe_type(value)} is not a CEL value")
    return type_value


def describe_type(value: Any) -> str:
    """Return the name of the type of `value`, for messages."""
    type_value = _TYPE_BY_CLASS.get(value.__class__)
    if type_value is None:
        return f"a Python {value.__class__.__name__}"
    return _SHORT_NAMES.get(type_value.name, type_value.name)


def no_such_overload(name: str, *operands: Any) -> OperationError:
    """Return the error that `name` is not defined for operands of these types."""
    types = ", ".join(map(describe_type, operands))
    return OperationError("no-such-overload", f"`{name}` is not defined for {types}")
