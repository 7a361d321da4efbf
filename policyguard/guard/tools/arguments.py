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
import sys
from collections import defaultdict, deque
from collections.abc import Mapping
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from pathlib import PurePath
from typing import Any
from uuid import UUID

import msgspec

from policyguard.engines.fingerprint import OpaqueText

_PLAIN = (str, int, float, bool, type(None))
_STANDARD = (
    *_PLAIN,
    *(Mapping, list, deque, tuple, set, frozenset, bytes, bytearray, memoryview),
    *(Decimal, date, time, timedelta, UUID, PurePath, range, complex),
)
"""Types that are read by their content; their subclasses may hold more."""
_FIELD_NAMES = (
    *("__pydantic_fields__", "model_fields", "__fields__"),  # pydantic, by version
    *("__dataclass_fields__", "__struct_fields__", "__attrs_attrs__"),
)
_TEXT_MODULES = frozenset({"ipaddress", "fractions", "zoneinfo", "yarl"})
"""Modules whose values are compared by their text."""
_DIGEST_KEY = secrets.token_bytes(32)
_DIGEST_SIZE = 12
_MAX_EXPONENT = 300
"""Decimals with more digits before the point are not finite floats."""


class _TooLargeError(Exception):
    """The arguments are deeper or larger than the policy's bounds."""


def read_arguments(named: Mapping[str, Any], *, depth: int, size: int) -> dict[str, Any]:
    """Return arguments as JSON-like data, with an `OpaqueText` for whatever is none.

    `depth` and `size` (bytes) are the bounds of arguments: what exceeds them is returned as it is,
    and refused by the check. Where a value holds more than its content, such as a number of a class
    that has a currency, the rest becomes an argument of its own: `amount.__dict__`.
    """
    reader = _Reader(depth, size)
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


class _Reader:
    """Reads the values of one call. `_left` is how many more bytes may be read."""

    def __init__(self, max_depth: int, max_size: int) -> None:
        self._max_depth = max_depth
        self._left = max_size
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
            return _opaque(value)
        self._path.add(id(value))
        try:
            return self._read(value, depth + 1)
        except _TooLargeError:
            raise
        except Exception:  # noqa: BLE001 - a host's object may raise anything
            return _opaque(value)
        finally:
            self._path.discard(id(value))

    def _read(self, value: Any, depth: int) -> Any:
        if isinstance(value, Enum):
            member = value.value
            return self.read(member if isinstance(member, _PLAIN) else value.name, depth)
        if isinstance(value, _STANDARD):
            number = self._read_count
            state = _hidden_state(value)
            if state:
                self._states[str(number)] = self.read(state, depth)
            return self._read_standard(value, depth)
        return self._read_other(value, depth)

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
            return sorted((self.read(item, depth) for item in value), key=_sort_key)
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
            return f"<{kind.__qualname__} {_digest(_sort_key(secret))}>"
        fields = _fields(value)
        if fields is None:
            return _opaque(value)
        return {name: self.read(item, depth) for name, item in fields.items()}

    def _read_mapping(self, value: Mapping[Any, Any], depth: int) -> Any:
        """Return an object; a list of pairs if two keys have one text."""
        pairs = [(self.read(key, depth), self.read(item, depth)) for key, item in value.items()]
        names = {key if isinstance(key, str) else _key_text(key): item for key, item in pairs}
        if len(names) == len(pairs):
            return names
        return sorted(([key, item] for key, item in pairs), key=_sort_key)

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
            return {
                "columns": self._read_cells(list(value.columns), depth),
                "index": self._read_column(value.index, depth),
                "data": [self._read_column(column, depth) for column in columns],
            }
        if hasattr(value, "iloc"):
            name = self._read_cells([value.name], depth)[0]
            index = self._read_column(value.index, depth)
            return {"name": name, "index": index, "data": self._read_column(value, depth)}
        if hasattr(value, "to_numpy") and hasattr(value, "dtype"):
            return self._read_column(value, depth)
        return str(value)  # an interval, a period, the missing value

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


def _fields(value: Any) -> dict[str, Any] | None:
    """Return the fields of a model, dataclass, attrs class or struct; None for other objects.

    Read from the object, not by its own serializer, which may leave fields out.
    """
    kind = type(value)
    for attribute in _FIELD_NAMES:
        names = getattr(kind, attribute, None)
        if names is not None:
            break
    else:
        return None
    if attribute == "__attrs_attrs__":
        names = [field.name for field in names]
    more: dict[str, Any] = {}
    for attribute in ("__pydantic_private__", "__pydantic_extra__"):
        more.update(getattr(value, attribute, None) or {})
    return {**_values(value, names), **more, **_attributes(value)}


def _hidden_state(value: Any) -> dict[str, Any]:
    """Return what a value of a standard type or a subclass holds beside its content."""
    state: dict[str, Any] = {}
    kind = type(value)
    if isinstance(value, (datetime, time)) and value.fold:
        state["fold"] = value.fold
    if isinstance(value, defaultdict) and value.default_factory is not None:
        factory = value.default_factory
        state["default_factory"] = factory.__qualname__ if isinstance(factory, type) else factory
    return state if _is_standard(kind) else {**state, **_attributes(value)}


def _attributes(value: Any) -> dict[str, Any]:
    """Return the attributes that an object has by itself, also those in slots."""
    found = dict(getattr(value, "__dict__", ()))
    for kind in type(value).__mro__:
        slots = () if _is_standard(kind) else kind.__dict__.get("__slots__", ())
        for name in (slots,) if isinstance(slots, str) else slots:
            if name.startswith("__"):
                if name.endswith("__"):
                    continue
                name = f"_{kind.__name__.lstrip('_')}{name}"
            if hasattr(value, name):
                found[name] = getattr(value, name)
    return found


def _is_standard(kind: type) -> bool:
    return kind.__module__.partition(".")[0] in sys.stdlib_module_names


def _values(value: Any, names: Any) -> dict[str, Any]:
    return {name: getattr(value, name) for name in names if hasattr(value, name)}


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
    if not value.is_finite() or abs(value.adjusted()) > _MAX_EXPONENT:
        return str(value)
    if value == value.to_integral_value():
        return int(value)
    found = float(value)
    return found if Decimal(repr(found)) == value else str(value)


def _read_timedelta(value: timedelta) -> Any:
    return msgspec.to_builtins(timedelta(value.days, value.seconds, value.microseconds))


def _key_text(key: Any) -> str:
    return str(key) if isinstance(key, _PLAIN) else _sort_key(key).decode()


def _sort_key(value: Any) -> bytes:
    """Return a text that orders JSON-like values of any type."""
    return msgspec.json.encode(value, order="deterministic")


def _digest(content: bytes) -> str:
    return hashlib.blake2b(content, digest_size=_DIGEST_SIZE, key=_DIGEST_KEY).hexdigest()


def _opaque(value: object) -> OpaqueText:
    """Return a text that names the type of an object, and equals no other."""
    return OpaqueText(f"<{type(value).__qualname__} #{os.urandom(6).hex()}>")
