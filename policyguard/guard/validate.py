"""Checks of the values that a host passes, before anything is counted.

A wrong value is a mistake of the program: `TypeError` or `ValueError` with the parameter's name.
Equivalent values are converted: a `Decimal` or a number of numpy, 404.0 for an HTTP status, None
for an empty text.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Collection, Iterable, Mapping
from datetime import UTC, datetime, timedelta
from reprlib import repr  # noqa: A004 - short, and for objects without a repr
from typing import Any, SupportsFloat

from policyguard.model.amounts import MAX_AMOUNT, to_units
from policyguard.model.decision import Decision
from policyguard.model.text import escape_surrogates

_MAX_INT = 2**63 - 1
"""The largest integer that is kept, and what stands for infinity."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_SEPARATORS = {0x1E: r"\x1e", 0x1F: r"\x1f"}
_MCP_HINTS = {
    "readOnlyHint": "read_only",
    "destructiveHint": "destructive",
    "idempotentHint": "idempotent",
    "openWorldHint": "open_world",
}
"""MCP's names of the hints."""


def text(name: str, value: object) -> str:
    """Return a text as a plain `str`: subclasses such as enums are encoded differently."""
    if not isinstance(value, str):
        raise _type_error(name, value, "text")
    return str.__str__(value)


def person(name: str, value: object) -> str:
    """Return a person's name without white space around it. `ValueError` if nothing is left."""
    found = text(name, value).strip()
    if not found:
        raise ValueError(f"`{name}` is empty: name the person")
    return found


def optional_text(name: str, value: object) -> str:
    """Return a text, empty for None."""
    return "" if value is None else text(name, value)


def identifier(name: str, value: object) -> str:
    """Return a name that journals and stores can hold, empty for None.

    Lone surrogates, such as `os.fsdecode` makes of odd bytes, and the two characters that separate
    the parts of a usage key are escaped.
    """
    found = optional_text(name, value)
    if found.isprintable():
        return found
    return escape_surrogates(found).translate(_SEPARATORS)


def call_id(name: str, value: object) -> str:
    """Return the id of a call."""
    if not isinstance(value, str):
        raise _type_error(name, value, "a decision or a call's id")
    return text(name, value)


def decision(name: str, value: object) -> None:
    """Raise `TypeError` for anything but a decision."""
    if not isinstance(value, Decision):
        raise _type_error(name, value, "the decision that `check` returned")


def text_list(name: str, values: Iterable[str] | None) -> tuple[str, ...]:
    """Return several texts, none for None. A single text is an error."""
    if values is None:
        return ()
    if isinstance(values, str | bytes) or not isinstance(values, Iterable):
        raise _type_error(name, values, "a list of text")
    return tuple([text(name, value) for value in values])


def tool_names(values: Iterable[str]) -> tuple[str, ...]:
    """Return the tools that an agent has, each once; an empty list is an agent without tools."""
    if values is None:
        raise _type_error("tools", values, "a list of text")
    names = text_list("tools", values)
    if not all(name.strip() for name in names):
        raise ValueError("`tools` holds an empty name: leave it out")
    return tuple(dict.fromkeys(names))


def path(name: str, value: object) -> str:
    """Return a folder's path as text, empty for None."""
    return optional_text(name, os.fspath(value) if isinstance(value, os.PathLike) else value)


def mapping(name: str, values: object) -> dict[str, Any]:
    """Return a copy of a mapping, empty for None."""
    if values is None:
        return {}
    if not isinstance(values, Mapping):
        raise _type_error(name, values, "a mapping")
    return {key: _to_builtin(value) for key, value in values.items()}


def bools(name: str, values: object, allowed: Collection[str]) -> dict[str, bool]:
    """Return booleans by name, without those that are None."""
    found = _known_items(name, values, allowed)
    for key, value in found.items():
        if not isinstance(value, bool):
            raise _type_error(f"{name}[{key!r}]", value, "True or False")
    return found


def numbers(name: str, values: object, allowed: Collection[str]) -> dict[str, float]:
    """Return numbers by name, without those that are None."""
    found = _known_items(name, values, allowed)
    return {key: number(f"{name}[{key!r}]", value) for key, value in found.items()}


def choice(name: str, value: object, choices: Collection[str]) -> str:
    """Return one of some words."""
    found = text(name, value)
    if found not in choices:
        raise ValueError(f"`{name}` is {repr(found)}, not one of {', '.join(choices)}")
    return found


def number(name: str, value: object) -> float:
    """Return a number, which may be infinite or NaN."""
    if type(value) is float:
        return value
    if type(value) is int and abs(value) < _MAX_INT:
        return value
    from numbers import Number  # most calls and results do not need it

    if not isinstance(value, Number) or not isinstance(value, SupportsFloat):
        raise _type_error(name, value, "a number")
    if isinstance(value, int) and abs(value) < _MAX_INT:
        return int(value)
    found: Any = value
    try:
        return float(found)
    except OverflowError:
        return -math.inf if found < 0 else math.inf
    except (ValueError, TypeError):  # a signalling NaN; a complex number of numpy
        raise _type_error(name, value, "a number") from None


def timestamp(name: str, value: object) -> int:
    """Return nanoseconds since 1970 (UTC), given as such or as an aware `datetime`."""
    if isinstance(value, (bool, float)):
        raise _type_error(name, value, "an aware `datetime` or nanoseconds, as of `time.time_ns`")
    if not isinstance(value, datetime):
        return integer(name, value)
    if value.utcoffset() is None:
        raise ValueError(f"`{name}` is a datetime without a time zone; use `datetime.now(UTC)`")
    passed = value - _EPOCH
    return ((passed.days * 86_400 + passed.seconds) * 10**6 + passed.microseconds) * 1000


def duration(name: str, value: object) -> float:
    """Return seconds, given as such or as a `timedelta`: at least 0, and finite for JSON.

    A host's clock may be set back while a tool runs, so that a negative duration is not a mistake.
    """
    found = value.total_seconds() if isinstance(value, timedelta) else number(name, value)
    return min(max(found, 0.0), float(_MAX_INT))


def usage(name: str, value: object) -> float:
    """Return the usage of a budget. Infinity and NaN, unknown to JSON, become the maximum."""
    found = number(name, value)
    return found if math.isfinite(found) else float(_MAX_INT)


def integer(name: str, value: object) -> int:
    """Return a 64-bit integer, rounded away from 0; the largest for NaN."""
    found = number(name, value)
    if type(found) is int:
        return found
    if math.isnan(found) or abs(found) >= _MAX_INT:
        return -_MAX_INT if found < 0 else _MAX_INT
    return math.floor(found) if found < 0 else math.ceil(found)


def store(value: object) -> None:
    """Raise `TypeError` for what is no store. Its value is not shown: it may hold a password."""
    if value is not None and not callable(getattr(value, "lock_session", None)):
        kind = type(value).__name__
        raise TypeError(f"`store` is the path of a SQLite file or a store, not of type `{kind}`")


def clock_time(clock: Callable[[], int]) -> int:
    """Return a clock's time in nanoseconds. `TypeError` for `time.time`, which gives seconds."""
    now = clock()
    if type(now) is not int:
        raise _type_error("clock()", now, "a whole number of nanoseconds, as of `time.time_ns`")
    return now


def amount(name: str, value: object) -> float:
    """Return an amount to count. `ValueError` unless it is a number from 0 to `MAX_AMOUNT`."""
    found = number(name, value)
    if to_units(found) is None:
        raise ValueError(f"`{name}` is {value!r:.40}, not a number from 0 to {MAX_AMOUNT:g}")
    return found


def error_value(name: str, value: object) -> None:
    """Raise `TypeError` for a boolean or a number, which is not an error."""
    if isinstance(value, (bool, int, float)):
        raise _type_error(name, value, "text or an exception")


def function(name: str, value: object) -> None:
    """Raise `TypeError` for what cannot be called."""
    if not callable(value):
        raise _type_error(name, value, "a function")


def _known_items(name: str, values: object, allowed: Collection[str]) -> dict[str, Any]:
    """Return a mapping without its None values. `ValueError` for an unknown name."""
    found = mapping(name, values)
    for key in found:
        if key not in allowed:
            hint = f"; MCP's `{key}` is `{_MCP_HINTS[key]}`" if key in _MCP_HINTS else ""
            known = ", ".join(allowed)
            raise ValueError(f"`{name}` has {repr(key)}, which is not one of {known}{hint}")
    return {key: value for key, value in found.items() if value is not None}


def _to_builtin(value: object) -> object:
    """Return texts and numbers of a subclass, such as enums, as plain values."""
    if isinstance(value, bool):
        return value
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, int):
        return int(value)
    return float(value) if isinstance(value, float) else value


def _type_error(name: str, value: object, expected: str) -> TypeError:
    return TypeError(f"`{name}` is {repr(value)}, of type `{type(value).__name__}`, not {expected}")
