"""CEL's conversions between types: `int(x)`, `string(x)` and the rest.

cel-spec langdef.md, "Standard Definitions". Python's conversions accept more than CEL's: spaces,
underscores between digits, digits of any script. So the text is matched first.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import Any, Final, TypeVar

from policyguard.cel.errors import OperationError, quote_short
from policyguard.cel.types.times import (
    NS_PER_SECOND,
    Duration,
    Timestamp,
    parse_duration,
    parse_timestamp,
    timestamp_from_seconds,
)
from policyguard.cel.types.uint import INT_MAX, INT_MIN, UINT_MAX, Uint
from policyguard.cel.types.values import no_such_overload
from policyguard.engines.lazy_pattern import lazy_pattern

T = TypeVar("T")

_INTEGER: Final = lazy_pattern(r"[+-]?[0-9]{1,40}")
_DOUBLE: Final = lazy_pattern(
    r"[+-]?(?:[0-9]+\.?[0-9]*(?:[eE][+-]?[0-9]+)?|\.[0-9]+(?:[eE][+-]?[0-9]+)?"
    r"|inf|infinity|nan)",
    re.IGNORECASE | re.ASCII,
)
_MAX_DOUBLE_LENGTH: Final = 1000
_TRUE: Final = frozenset({"1", "t", "T", "true", "TRUE", "True"})
_FALSE: Final = frozenset({"0", "f", "F", "false", "FALSE", "False"})


def _out_of_range(target: str) -> OperationError:
    return OperationError("overflow", f"the value does not fit into {target}")


def _invalid_text(target: str, text: str) -> OperationError:
    return OperationError("invalid-argument", f"{quote_short(text)} is not {target}")


def to_int(value: Any) -> int:
    """`int(value)`. Doubles are truncated; timestamps become whole seconds since 1970."""
    match value:
        case bool():
            raise no_such_overload("int", value)
        case Uint():
            result = int(value)
        case int():
            return value
        case float():
            # The limits are excluded: the double nearest to INT_MAX is above it.
            if not -9.223372036854775808e18 < value < 9.223372036854775808e18:
                raise _out_of_range("a 64-bit integer")
            return int(value)
        case str():
            if not _INTEGER.fullmatch(value):
                raise _invalid_text("an integer", value)
            result = int(value)
        case Timestamp():
            return value.ns // NS_PER_SECOND
        case _:
            raise no_such_overload("int", value)
    if INT_MIN <= result <= INT_MAX:
        return result
    raise _out_of_range("a 64-bit integer")


def to_uint(value: Any) -> Uint:
    """`uint(value)`. Doubles are truncated."""
    match value:
        case bool():
            raise no_such_overload("uint", value)
        case int():
            result = int(value)
        case float():
            if not 0.0 <= value < 1.8446744073709551616e19:
                raise _out_of_range("a 64-bit unsigned integer")
            result = int(value)
        case str():
            if value.startswith("-") or not _INTEGER.fullmatch(value):
                raise _invalid_text("an unsigned integer", value)
            result = int(value)
        case _:
            raise no_such_overload("uint", value)
    if 0 <= result <= UINT_MAX:
        return Uint(result)
    raise _out_of_range("a 64-bit unsigned integer")


def to_string(value: Any) -> str:
    """`string(value)`. Bytes must be UTF-8."""
    match value:
        case str():
            return value
        case bool():
            return "true" if value else "false"
        case int():
            return str(int(value))
        case float():
            return _format_double(value)
        case bytes():
            try:
                return value.decode()
            except UnicodeDecodeError:
                raise OperationError("invalid-argument", "the bytes are not UTF-8") from None
        case Timestamp() | Duration():
            return str(value)
    raise no_such_overload("string", value)


def _format_double(value: float) -> str:
    """Format the shortest text that reads as `value`, in the form of cel-go and cel-cpp.

    An exponent from a million on and below a ten-thousandth; integers without a point.
    """
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    text = repr(value)
    digits = text.partition("e")[0].replace(".", "").strip("-0") or "0"
    mantissa, _, exponent = f"{value:.{len(digits) - 1}e}".partition("e")
    if -4 <= int(exponent) < 6:
        return text.removesuffix(".0")
    return f"{mantissa}e{exponent}"


def _converter(name: str, conversions: dict[type, Callable[[Any], T]]) -> Callable[[Any], T]:
    """Return `name(value)`, which chooses a conversion by the class of the value."""

    def convert(value: Any) -> T:
        conversion = conversions.get(value.__class__)
        if conversion is None:
            raise no_such_overload(name, value)
        return conversion(value)

    return convert


def _parse_double(text: str) -> float:
    if len(text) > _MAX_DOUBLE_LENGTH or not _DOUBLE.fullmatch(text):
        raise _invalid_text("a number", text)
    return float(text)


def _parse_bool(text: str) -> bool:
    if text not in _TRUE and text not in _FALSE:
        raise _invalid_text("true or false", text)
    return text in _TRUE


def _encode(text: str) -> bytes:
    return text.encode("utf-8", "replace")  # a lone surrogate becomes `?`


def identity(value: Any) -> Any:
    """`dyn(value)`."""
    return value


to_bool: Final[Callable[[Any], bool]] = _converter("bool", {bool: bool, str: _parse_bool})
to_bytes: Final[Callable[[Any], bytes]] = _converter("bytes", {bytes: bytes, str: _encode})
to_double: Final[Callable[[Any], float]] = _converter(
    "double", {int: float, Uint: float, float: float, str: _parse_double}
)
to_duration: Final[Callable[[Any], Duration]] = _converter(
    "duration", {Duration: identity, str: parse_duration}
)
to_timestamp: Final[Callable[[Any], Timestamp]] = _converter(
    "timestamp", {Timestamp: identity, str: parse_timestamp, int: timestamp_from_seconds}
)
