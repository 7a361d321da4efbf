"""What the host's program says of a session, a call or a result, checked before it is counted.

A value of another kind than was asked for is a mistake of the program: `TypeError` or `ValueError`
with the parameter's name. What can be told without doubt is taken as what it says: a `Decimal` or
a number of numpy, 404.0 for an HTTP status, None for a text that there is none of.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Collection, Iterable, Mapping
from datetime import UTC, datetime, timedelta
from reprlib import repr  # noqa: A004 - short, and of whatever has none
from typing import Any, SupportsFloat

from policyguard.model.amounts import to_units
from policyguard.model.decision import Decision
from policyguard.model.text import escape_surrogates

_MAX_INT = 2**63 - 1
"""The largest whole number that is kept; more than anybody has used, longer than anybody waits."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_SEPARATORS = {0x1E: r"\x1e", 0x1F: r"\x1f"}
_MCP_HINTS = {
    "readOnlyHint": "read_only",
    "destructiveHint": "destructive",
    "idempotentHint": "idempotent",
    "openWorldHint": "open_world",
}
"""What MCP calls a hint, and we."""


def text(name: str, value: object) -> str:
    """A text, of `str` itself: subclasses such as enums have an encoding of their own."""
    if not isinstance(value, str):
        raise _type_error(name, value, "a text")
    return str.__str__(value)


def optional_text(name: str, value: object) -> str:
    """A text, empty where there is none."""
    return "" if value is None else text(name, value)


def identifier(name: str, value: object) -> str:
    """A name that lines and stores hold as it is, empty where there is none.

    Halves of surrogate pairs, such as `os.fsdecode` makes of odd bytes, are escapes in it, and so
    are the two characters that stand between the parts of an account's key.
    """
    return escape_surrogates(optional_text(name, value)).translate(_SEPARATORS)


def text_list(name: str, values: Iterable[str] | None) -> tuple[str, ...]:
    """Several texts, or none. One text is not taken for its letters."""
    if values is None:
        return ()
    if isinstance(values, str) or not isinstance(values, Iterable):
        raise _type_error(name, values, "a list of texts")
    return tuple([text(name, value) for value in values])


def path(name: str, value: object) -> str:
    """A folder's path, as text; empty where there is none."""
    return optional_text(name, os.fspath(value) if isinstance(value, os.PathLike) else value)


def mapping(name: str, values: object) -> dict[str, Any]:
    """An object, copied: its owner may go on to change it."""
    if values is None:
        return {}
    if not isinstance(values, Mapping):
        raise _type_error(name, values, "a mapping")
    return {key: _to_builtin(value) for key, value in values.items()}


def bools(name: str, values: object, allowed: Collection[str]) -> dict[str, bool]:
    """Yes and no by name; None for what is not known."""
    found = _known_items(name, values, allowed)
    for key, value in found.items():
        if not isinstance(value, bool):
            raise _type_error(f"{name}[{key!r}]", value, "True or False")
    return found


def numbers(name: str, values: object, allowed: Collection[str]) -> dict[str, float]:
    """Numbers by name; None for what is not known."""
    found = _known_items(name, values, allowed)
    return {key: number(f"{name}[{key!r}]", value) for key, value in found.items()}


def choice(name: str, value: object, choices: Collection[str]) -> str:
    """One of some words."""
    found = text(name, value)
    if found not in choices:
        raise ValueError(f"`{name}` is {repr(found)}, not one of {', '.join(choices)}")
    return found


def number(name: str, value: object) -> float:
    """A number. It may be infinite, or none (NaN): what counts it knows what that means."""
    if type(value) is float:
        return value
    if type(value) is int and abs(value) < _MAX_INT:
        return value
    from numbers import Number  # which most calls and results do without

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
    """A point in time in nanoseconds since 1970 (UTC), as such or as an aware `datetime`."""
    if not isinstance(value, datetime):
        return integer(name, value)
    if value.utcoffset() is None:
        raise ValueError(f"`{name}` is a datetime without a time zone; use `datetime.now(UTC)`")
    passed = value - _EPOCH
    return ((passed.days * 86_400 + passed.seconds) * 10**6 + passed.microseconds) * 1000


def duration(name: str, value: object) -> float:
    """A duration in seconds, as such or as a `timedelta`; an infinite one as a finite number."""
    if isinstance(value, timedelta):
        return value.total_seconds()
    found = number(name, value)
    return math.copysign(_MAX_INT, found) if math.isinf(found) else found


def usage(name: str, value: object) -> float:
    """What was used of a budget: infinity and NaN, which JSON has not, are more than there is."""
    found = number(name, value)
    return found if math.isfinite(found) else float(_MAX_INT)


def integer(name: str, value: object) -> int:
    """A whole number of 64 bits: the next one away from 0; the largest for what is none (NaN)."""
    found = number(name, value)
    if type(found) is int:
        return found
    if math.isnan(found) or abs(found) >= _MAX_INT:
        return -_MAX_INT if found < 0 else _MAX_INT
    return math.floor(found) if found < 0 else math.ceil(found)


def clock_time(clock: Callable[[], int]) -> int:
    """What a clock says: a whole number of nanoseconds. `time.time` gives seconds."""
    now = clock()
    if type(now) is not int:
        raise _type_error("clock()", now, "a whole number of nanoseconds, as of `time.time_ns`")
    return now


def amount(name: str, value: object) -> float:
    """An amount to be counted: a finite number of at least 0, else `ValueError`."""
    found = number(name, value)
    if to_units(found) is None:
        raise ValueError(f"`{name}` is {value!r:.40}, no finite number of at least 0")
    return found


def error_value(name: str, value: object) -> None:
    """What failed: a text, an exception, anything but a flag or number, which tells of no error."""
    if isinstance(value, (bool, int, float)):
        raise _type_error(name, value, "a text or an exception")


def function(name: str, value: object) -> None:
    """What can be called."""
    if not callable(value):
        raise _type_error(name, value, "a function")


def call_id(decision: Decision | str, session: str) -> str:
    """The id of a call: of the decision that let it through, or as it is.

    `ValueError` for a decision of another session: each has calls of the same ids.
    """
    if not isinstance(decision, Decision):
        return text("decision", decision)
    if decision.session != session:
        raise ValueError(
            f"call `{decision.id}` is one of session `{decision.session}`, not of this"
        )
    return decision.id


def _known_items(name: str, values: object, allowed: Collection[str]) -> dict[str, Any]:
    """An object without what is None. A name that is not known would say nothing: `ValueError`."""
    found = mapping(name, values)
    for key in found:
        if key not in allowed:
            meant = f"; MCP's `{key}` is `{_MCP_HINTS[key]}`" if key in _MCP_HINTS else ""
            known = ", ".join(allowed)
            raise ValueError(f"`{name}` has {repr(key)}, which is not one of {known}{meant}")
    return {key: value for key, value in found.items() if value is not None}


def _to_builtin(value: object) -> object:
    """Texts and numbers of a class of their own, such as enums, as what they say."""
    if isinstance(value, bool):
        return value
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, int):
        return int(value)
    return float(value) if isinstance(value, float) else value


def _type_error(name: str, value: object, expected: str) -> TypeError:
    return TypeError(f"`{name}` is {repr(value)}, of type `{type(value).__name__}`, not {expected}")
