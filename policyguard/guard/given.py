"""What the host's program says of a session, a call or a result, checked before it is counted.

A value of another kind than was asked for is a mistake of the program: `TypeError` or `ValueError`
with the parameter's name. What can be told without doubt is taken as what it says: a `Decimal` or
a number of numpy, 404.0 for an HTTP status, None for a text that there is none of.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Collection, Iterable, Mapping
from reprlib import repr  # noqa: A004 - short, and of whatever has none
from typing import Any, SupportsFloat

from policyguard.model.decision import Decision
from policyguard.model.quantity import units
from policyguard.store.text import well_formed

_FARTHEST = 2**63 - 1
"""The largest whole number that is kept; more than anybody has used, longer than anybody waits."""

_SEPARATORS = {0x1E: r"\x1e", 0x1F: r"\x1f"}
_OF_MCP = {
    "readOnlyHint": "read_only",
    "destructiveHint": "destructive",
    "idempotentHint": "idempotent",
    "openWorldHint": "open_world",
}
"""What MCP calls a hint, and we."""


def text(name: str, value: object) -> str:
    """A text, of `str` itself: subclasses such as enums have an encoding of their own."""
    if not isinstance(value, str):
        raise _wrong(name, value, "a text")
    return str.__str__(value)


def optional(name: str, value: object) -> str:
    """A text, empty where there is none."""
    return "" if value is None else text(name, value)


def known_as(name: str, value: object) -> str:
    """A name that lines and stores hold as it is, empty where there is none.

    Halves of surrogate pairs, such as `os.fsdecode` makes of odd bytes, are escapes in it, and so
    are the two characters that stand between the parts of an account's key.
    """
    return well_formed(optional(name, value)).translate(_SEPARATORS)


def texts(name: str, values: Iterable[str] | None) -> tuple[str, ...]:
    """Several texts, or none. One text is not taken for its letters."""
    if values is None:
        return ()
    if isinstance(values, str) or not isinstance(values, Iterable):
        raise _wrong(name, values, "a list of texts")
    return tuple([text(name, value) for value in values])


def path(name: str, value: object) -> str:
    """A folder's path, as text; empty where there is none."""
    return optional(name, os.fspath(value) if isinstance(value, os.PathLike) else value)


def facts(name: str, values: object) -> dict[str, Any]:
    """An object, copied: its owner may go on to change it."""
    if values is None:
        return {}
    if not isinstance(values, Mapping):
        raise _wrong(name, values, "a mapping")
    return {key: _plain(value) for key, value in values.items()}


def flags(name: str, values: object, names: Collection[str]) -> dict[str, bool]:
    """Yes and no by name; None for what is not known."""
    found = _named(name, values, names)
    for key, value in found.items():
        if not isinstance(value, bool):
            raise _wrong(f"{name}[{key!r}]", value, "True or False")
    return found


def numbers(name: str, values: object, names: Collection[str]) -> dict[str, float]:
    """Numbers by name; None for what is not known."""
    found = _named(name, values, names)
    return {key: number(f"{name}[{key!r}]", value) for key, value in found.items()}


def word(name: str, value: object, words: Collection[str]) -> str:
    """One of some words."""
    found = text(name, value)
    if found not in words:
        raise ValueError(f"`{name}` is {repr(found)}, not one of {', '.join(words)}")
    return found


def number(name: str, value: object) -> float:
    """A number. It may be infinite, or none (NaN): what counts it knows what that means."""
    if type(value) is float:
        return value
    if type(value) is int and abs(value) < _FARTHEST:
        return value
    from numbers import Number  # which most calls and results do without

    if not isinstance(value, Number) or not isinstance(value, SupportsFloat):
        raise _wrong(name, value, "a number")
    if isinstance(value, int) and abs(value) < _FARTHEST:
        return int(value)
    found: Any = value
    try:
        return float(found)
    except OverflowError:
        return -math.inf if found < 0 else math.inf
    except (ValueError, TypeError):  # a signalling NaN; a complex number of numpy
        raise _wrong(name, value, "a number") from None


def seconds(name: str, value: object) -> float:
    """A span of time. JSON knows no infinity: without end is longer than anybody waits."""
    found = number(name, value)
    return math.copysign(_FARTHEST, found) if math.isinf(found) else found


def used(name: str, value: object) -> float:
    """What was used of a budget: infinity and NaN, which JSON has not, are more than there is."""
    found = number(name, value)
    return found if math.isfinite(found) else float(_FARTHEST)


def whole(name: str, value: object) -> int:
    """A whole number of 64 bits: the next one away from 0; the largest for what is none (NaN)."""
    found = number(name, value)
    if type(found) is int:
        return found
    if math.isnan(found) or abs(found) >= _FARTHEST:
        return -_FARTHEST if found < 0 else _FARTHEST
    return math.floor(found) if found < 0 else math.ceil(found)


def time(clock: Callable[[], int]) -> int:
    """What a clock says: a whole number of nanoseconds. `time.time` gives seconds."""
    now = clock()
    if type(now) is not int:
        raise _wrong("clock()", now, "a whole number of nanoseconds, as of `time.time_ns`")
    return now


def amount(name: str, value: object) -> float:
    """An amount to be counted: a finite number of at least 0, else `ValueError`."""
    found = number(name, value)
    if units(found) is None:
        raise ValueError(f"`{name}` is {value!r:.40}, no finite number of at least 0")
    return found


def failure(name: str, value: object) -> None:
    """What failed: a text, an exception, anything but a flag or number, which tells of no error."""
    if isinstance(value, (bool, int, float)):
        raise _wrong(name, value, "a text or an exception")


def function(name: str, value: object) -> None:
    """What can be called."""
    if not callable(value):
        raise _wrong(name, value, "a function")


def call(decision: Decision | str, session: str) -> str:
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


def _named(name: str, values: object, names: Collection[str]) -> dict[str, Any]:
    """An object without what is None. A name that is not known would say nothing: `ValueError`."""
    found = facts(name, values)
    for key in found:
        if key not in names:
            meant = f"; MCP's `{key}` is `{_OF_MCP[key]}`" if key in _OF_MCP else ""
            known = ", ".join(names)
            raise ValueError(f"`{name}` has {repr(key)}, which is not one of {known}{meant}")
    return {key: value for key, value in found.items() if value is not None}


def _plain(value: object) -> object:
    """Texts and numbers of a class of their own, such as enums, as what they say."""
    if isinstance(value, bool):
        return value
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, int):
        return int(value)
    return float(value) if isinstance(value, float) else value


def _wrong(name: str, value: object, wanted: str) -> TypeError:
    return TypeError(f"`{name}` is {repr(value)}, of type `{type(value).__name__}`, not {wanted}")
