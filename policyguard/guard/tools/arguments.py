"""Reads the arguments of a Python function as JSON-like data, as what they are.

Models, dataclasses, arrays, tables and the value types of the standard library become what a rule
can read and an approval can compare. They are recognised by their attributes: nothing is imported.
What an object holds beside its fields counts too. Anything else (a client, a file, a function) is
*opaque*: a text that equals no other.
"""

from __future__ import annotations

import base64
import hashlib
import os
import secrets
from collections import deque
from collections.abc import Mapping
from datetime import date, time, timedelta
from decimal import Decimal
from enum import Enum
from pathlib import PurePath
from typing import Any
from uuid import UUID

import msgspec

from policyguard.engines.fingerprint import OpaqueText
from policyguard.guard.tools.object_state import (
    attributes_of,
    fields_of,
    hidden_state,
    key_text,
    sort_key,
)

_PLAIN = (str, int, float, bool, type(None))
_STANDARD = (
    *_PLAIN,
    *(Mapping, list, deque, tuple, set, frozenset, bytes, bytearray, memoryview),
    *(Decimal, date, time, timedelta, UUID, PurePath, range, complex),
)
"""Types that are read by their content; their subclasses may hold more."""
_TEXT_MODULES = frozenset({"ipaddress", "fractions", "zoneinfo", "yarl"})
"""Modules whose values are compared by their text."""
_DIGEST_KEY = secrets.token_bytes(32)
_DIGEST_SIZE = 12
_MAX_EXPONENT = 300
"""Decimals with more digits before the point are not finite floats."""


class _TooLargeError(Exception):
    """The arguments are deeper or larger than the policy's bounds."""


class ArgumentReader:
    """Reads the arguments of one call, again if need be.

    `depth` and `size` (bytes) are the bounds of arguments: what exceeds them is returned as it is,
    and refused by the check. Where a value holds more than its content, such as a number of a class
    that has a currency, the rest becomes an argument of its own: `amount.__dict__`.
    """

    def __init__(self, depth: int, size: int) -> None:
        self._depth = depth
        self._size = size
        self._opaque: dict[int, tuple[OpaqueText, object]] = {}

    def read(self, named: Mapping[str, Any]) -> dict[str, Any]:
        """Return arguments as JSON-like data, with an `OpaqueText` for whatever is none.

        An object that is opaque has the same text at each reading.
        """
        reader = _Reader(self._depth, self._size, self._opaque)
        arguments: dict[str, Any] = {}
        for name, value in named.items():
            if type(value) in _PLAIN:
                arguments[name] = value
                continue
            arguments[name], states = reader.read_argument(value)
            if states:
                key = f"{name}.__dict__"
                while key in named:
                    key += "_"
                arguments[key] = states
        return arguments


def is_immutable(named: Mapping[str, Any]) -> bool:
    """Whether no argument can change while its call is decided."""
    return all(type(value) in _PLAIN for value in named.values())


def are_equal(first: Mapping[str, Any], second: Mapping[str, Any]) -> bool:
    """Whether arguments that were read are the same; 1, 1.0 and true are not."""
    try:
        return first == second and repr(first) == repr(second)
    except Exception:  # noqa: BLE001 - a number of a host's class may raise anything
        return False


def digest_state(values: tuple[object, ...], *, depth: int, size: int) -> str:
    """Return a digest of all that objects hold; "" if not all of it is data, or it is too large.

    Objects of any class are read by their attributes; classes and functions hold no data.
    """
    opaque: dict[int, tuple[OpaqueText, object]] = {}
    reader = _Reader(depth, size, opaque)
    states: list[Any] = []
    for value in values:
        kind = type(value)
        if isinstance(value, type) or (callable(value) and hasattr(value, "__code__")):
            return ""
        is_data = isinstance(value, _STANDARD) or fields_of(value) is not None
        content = value if is_data else attributes_of(value)
        states.append((kind.__module__, kind.__qualname__, *reader.read_argument(content)))
    if opaque or reader.is_too_large:
        return ""
    return _digest(sort_key(states))


class _Reader:
    """Reads the values of one call. `_left` is how many more bytes may be read."""

    def __init__(
        self, max_depth: int, max_size: int, opaque: dict[int, tuple[OpaqueText, object]]
    ) -> None:
        self.is_too_large = False
        self._max_depth = max_depth
        self._left = max_size
        self._opaque = opaque
        self._path: set[int] = set()
        self._read_count = 0
        self._states: dict[str, Any] = {}

    def read_argument(self, value: Any) -> tuple[Any, dict[str, Any]]:
        """Return an argument as JSON-like data, and what its values hold beside their content.

        The latter by the numbers of the values, in the order of reading.
        """
        self._read_count, self._states = 0, {}
        try:
            return self.read(value, 1), self._states
        except _TooLargeError:
            self.is_too_large = True
            return value, {}

    def read(self, value: Any, depth: int) -> Any:
        """Return a value as JSON-like data. A cycle, or what raises when it is read, is opaque."""
        self._left -= 1
        self._read_count += 1
        if type(value) in _PLAIN:
            return value
        if depth > self._max_depth or self._left < 0:
            raise _TooLargeError
        if id(value) in self._path:
            return self._stand_in(value)
        self._path.add(id(value))
        try:
            return self._read(value, depth + 1)
        except _TooLargeError:
            raise
        except Exception:  # noqa: BLE001 - a host's object may raise anything
            return self._stand_in(value)
        finally:
            self._path.discard(id(value))

    def _read(self, value: Any, depth: int) -> Any:
        if isinstance(value, Enum):
            member = value.value
            return self.read(member if isinstance(member, _PLAIN) else value.name, depth)
        if isinstance(value, _STANDARD):
            number = self._read_count
            state = hidden_state(value)
            if state:
                self._states[str(number)] = self.read(state, depth)
            return self._read_standard(value, depth)
        return self._read_other(value, depth)

    def _stand_in(self, value: object) -> OpaqueText:
        """Return a text that names the type of an object, and equals no other."""
        known = self._opaque.get(id(value))
        if known is None:
            text = OpaqueText(f"<{type(value).__qualname__} #{os.urandom(6).hex()}>")
            known = self._opaque[id(value)] = (text, value)  # alive, so that no other has its id
        return known[0]

    def _read_standard(self, value: Any, depth: int) -> Any:
        """Read the content of a standard type or a subclass."""
        if isinstance(value, _PLAIN):
            return value  # a subclass: the check makes it plain
        if isinstance(value, Mapping):
            return self._read_mapping(value, depth)
        if isinstance(value, (list, deque)):
            return [self.read(item, depth) for item in value]
        if isinstance(value, tuple):
            return tuple([self.read(item, depth) for item in value])
        if isinstance(value, (set, frozenset)):
            return sorted((self.read(item, depth) for item in value), key=sort_key)
        if isinstance(value, (bytes, bytearray, memoryview)):
            return self._read_bytes(bytes(value), type(value).__name__)
        if isinstance(value, Decimal):
            return _read_decimal(value)
        if isinstance(value, (date, time)):
            return value.isoformat()
        if isinstance(value, timedelta):
            return _read_timedelta(value)
        return str(value)

    def _read_other(self, value: Any, depth: int) -> Any:
        """Read an array, a table, a value that is known by its module, or an object with fields."""
        kind = type(value)
        module = kind.__module__.partition(".")[0]
        if module == "numpy":
            return self._read_array(value, depth)
        if module == "pandas":
            return self._read_table(value, depth)
        if module in _TEXT_MODULES or (module.startswith("pydantic") and _is_url(kind)):
            return str(value)
        if module == "pydantic" and hasattr(kind, "get_secret_value"):
            secret = self.read(value.get_secret_value(), depth)
            return f"<{kind.__qualname__} {_digest(sort_key(secret))}>"
        fields = fields_of(value)
        if fields is None:
            return self._stand_in(value)
        return {name: self.read(item, depth) for name, item in fields.items()}

    def _read_mapping(self, value: Mapping[Any, Any], depth: int) -> Any:
        """Return an object; a list of pairs if two keys have one text."""
        pairs = [(self.read(key, depth), self.read(item, depth)) for key, item in value.items()]
        names = {key if isinstance(key, str) else key_text(key): item for key, item in pairs}
        if len(names) == len(pairs):
            return names
        return sorted(([key, item] for key, item in pairs), key=sort_key)

    def _read_bytes(self, value: bytes, kind: str) -> str:
        if self._is_large(len(value) * 2):
            return f"<{kind} of {len(value)} bytes, {_digest(value)}>"
        return base64.b64encode(value).decode()

    def _read_array(self, value: Any, depth: int) -> Any:
        """Read a scalar or an array of numpy; a large one as its digest."""
        dtype, shape = value.dtype, getattr(value, "shape", ())
        if dtype.names is not None:
            return {name: self.read(value[name], depth) for name in dtype.names}
        found: Any = None
        if len(shape) > 1 and not value.size:  # its list shows one of its sizes
            return f"<{type(value).__name__} of {'x'.join(map(str, shape))} {dtype}>"
        if shape and dtype.hasobject:
            found = value.tolist()
            content = _encode_cells(found)
            is_large = content is not None and self._is_large(len(content))
        else:
            content = None
            is_large = bool(shape) and self._is_large(value.size * 16)
        if is_large:
            content = f"{dtype.str}{shape}".encode() + (content or value.tobytes())
            sizes = "x".join(map(str, shape))
            return f"<{type(value).__name__} of {sizes} {dtype}, {_digest(content)}>"
        found = value.tolist() if found is None else found
        if type(found) is type(value):  # a number that Python has none for
            return str(value)
        return self._read_cells(found, depth)

    def _read_table(self, value: Any, depth: int) -> Any:
        """Read a table, a column, an index or a value of pandas."""
        if hasattr(value, "columns"):
            columns = [value.iloc[:, position] for position in range(len(value.columns))]
            table = {
                "columns": self._read_cells(list(value.columns), depth),
                "index": self._read_column(value.index, depth),
                "data": [self._read_column(column, depth) for column in columns],
            }
            return table | self._read_labels(value, [value.columns, value.index], columns, depth)
        if hasattr(value, "iloc"):
            name = self._read_cells([value.name], depth)[0]
            index = self._read_column(value.index, depth)
            series = {"name": name, "index": index, "data": self._read_column(value, depth)}
            return series | self._read_labels(value, [value.index], [value], depth)
        if hasattr(value, "to_numpy") and hasattr(value, "dtype"):
            return self._read_column(value, depth)
        return str(value)  # an interval, a period, the missing value

    def _read_labels(
        self, table: Any, axes: list[Any], columns: list[Any], depth: int
    ) -> dict[str, Any]:
        """Return what a table has beside its cells, if anything: names, categories, `attrs`."""
        names = [list(axis.names) for axis in axes]
        categories = [getattr(column.dtype, "categories", None) for column in columns]
        found = {
            "names": self._read_cells(names, depth) if any(map(any, names)) else None,
            "categories": [
                None if one is None else self._read_column(one, depth) for one in categories
            ],
            "attrs": self.read(dict(table.attrs), depth) if table.attrs else None,
        }
        if all(one is None for one in categories):
            del found["categories"]
        return {name: one for name, one in found.items() if one is not None}

    def _read_column(self, column: Any, depth: int) -> Any:
        return self.read(column.to_numpy(), depth)

    def _read_cells(self, found: Any, depth: int) -> Any:
        """Return values of arrays, whose NaN and infinity are not errors, unlike an argument's."""
        if isinstance(found, list):
            return [self._read_cells(item, depth) for item in found]
        read = self.read(found, depth)
        if isinstance(read, float) and not abs(read) < float("inf"):
            return str(read)
        return read

    def _is_large(self, cost: int) -> bool:
        """Whether a value would take more than half of what is left; if not, count it."""
        if cost > self._left // 2:
            return True
        self._left -= cost
        return False


def _is_url(kind: type) -> bool:
    return kind.__name__.endswith(("Url", "Dsn"))


def _encode_cells(cells: Any) -> bytes | None:
    """Return the cells of an array as bytes; None where one is not JSON-like."""
    try:
        return msgspec.msgpack.encode(cells)
    except (TypeError, ValueError, OverflowError, RecursionError):
        return None


def _read_decimal(value: Decimal) -> int | float | str:
    """Return a decimal as the number it is, or as text where no number is exactly as large."""
    if not value.is_finite() or value.adjusted() > _MAX_EXPONENT:
        return str(value)
    if value == value.to_integral_value():
        return int(value)
    found = float(value)
    return found if Decimal(repr(found)) == value else str(value)


def _read_timedelta(value: timedelta) -> Any:
    return msgspec.to_builtins(timedelta(value.days, value.seconds, value.microseconds))


def _digest(content: bytes) -> str:
    return hashlib.blake2b(content, digest_size=_DIGEST_SIZE, key=_DIGEST_KEY).hexdigest()
