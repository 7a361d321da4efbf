"""The functions that every expression may call."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import msgspec

from policyguard.cel.functions import paths, schedules, urls
from policyguard.cel.runtime import containers, conversions, strings
from policyguard.cel.types import times
from policyguard.cel.types.times import Duration, Timestamp
from policyguard.cel.types.types import (
    BOOL,
    BYTES,
    DOUBLE,
    DURATION,
    DYN,
    INT,
    STRING,
    TIMESTAMP,
    TYPE,
    UINT,
    Type,
    list_of,
    map_of,
)
from policyguard.cel.types.values import no_such_overload, type_of
from policyguard.engines.regex import Regex

__all__ = ["STANDARD", "UNAVAILABLE", "Function"]

UNAVAILABLE: Final = frozenset({"finds", "runs", "only_runs", "opaque", "sql"})
"""Functions of the policy language that are not implemented yet; using one is an error."""


class Function(msgspec.Struct, frozen=True):
    """One overload of a function: its signature and implementation.

    `implementation` takes the receiver (if any) and the arguments. It returns a value of the type
    `result`, which generated code relies on, and raises `ValueError` or `TypeError` for an invalid
    argument; any other exception reaches the caller.

    `prepare_literal` requires the last argument to be a string literal. It is called with the
    literal at compile time; a `ValueError` becomes a compile error at the argument, and a result
    other than None replaces the literal in calls. Without `requires_literal`, other arguments are
    passed unchanged.
    """

    name: str
    receiver: Type | None
    parameters: tuple[Type, ...]
    result: Type
    implementation: Callable[..., Any]
    prepare_literal: Callable[[str], object] | None = None
    requires_literal: bool = True
    checks_operands: bool = False
    """Whether the implementation checks the types of its operands. Otherwise generated code checks
    strings, bytes, bools, numbers and times before the call."""
    is_linear: bool = True
    """Whether the cost grows with the size of the operands. Inside a macro it is counted."""

    def __str__(self) -> str:
        """Format the signature for messages."""
        arguments = ", ".join(map(str, self.parameters))
        receiver = f"{self.receiver}." if self.receiver is not None else ""
        return f"{receiver}{self.name}({arguments})"


_LIST: Final = list_of(DYN)
_MAP: Final = map_of(DYN, DYN)
_STRINGS: Final = list_of(STRING)


def _matches(text: Any, pattern: Regex) -> bool:
    if text.__class__ is not str:
        raise no_such_overload("matches", text)
    return pattern.search(text)


def _identity(value: Any) -> Any:
    return value


def _make_timestamp_getter(name: str) -> Callable[..., int]:
    part = times.TIMESTAMP_GETTERS[name]

    def getter(moment: Any, zone: Any = "UTC") -> int:
        if moment.__class__ is not Timestamp:
            raise no_such_overload(name, moment)
        return part(times.local_time(moment, times.parse_zone(zone)))

    return getter


def _make_getter(name: str) -> Callable[..., int]:
    """Return a method that both timestamps and durations have."""
    of_timestamp = _make_timestamp_getter(name)
    unit = times.DURATION_GETTERS[name]

    def getter(value: Any, *zone: Any) -> int:
        if value.__class__ is Duration and not zone:
            whole: int = abs(value.ns) // unit
            return whole if value.ns >= 0 else -whole
        return of_timestamp(value, *zone)

    return getter


def _milliseconds(value: Any, *zone: Any) -> int:
    """Return the milliseconds within the second of a timestamp (in any zone) or a duration."""
    if value.__class__ is Duration and not zone:
        whole: int = abs(value.ns) // 1_000_000 % 1000
        return whole if value.ns >= 0 else -whole
    if value.__class__ is Timestamp:
        if zone:
            times.parse_zone(zone[0])
        part: int = value.ns % times.NS_PER_SECOND // 1_000_000
        return part
    raise no_such_overload("getMilliseconds", value)


def _conversions() -> Sequence[Function]:
    taken = {
        "bool": (BOOL, conversions.to_bool, (BOOL, STRING)),
        "bytes": (BYTES, conversions.to_bytes, (BYTES, STRING)),
        "double": (DOUBLE, conversions.to_double, (INT, UINT, DOUBLE, STRING)),
        "duration": (DURATION, conversions.to_duration, (DURATION, STRING)),
        "int": (INT, conversions.to_int, (INT, UINT, DOUBLE, STRING, TIMESTAMP)),
        "string": (
            STRING,
            conversions.to_string,
            (STRING, BOOL, INT, UINT, DOUBLE, BYTES, TIMESTAMP, DURATION),
        ),
        "timestamp": (TIMESTAMP, conversions.to_timestamp, (TIMESTAMP, STRING, INT)),
        "uint": (UINT, conversions.to_uint, (INT, UINT, DOUBLE, STRING)),
        "dyn": (DYN, _identity, (DYN,)),
        "type": (TYPE, type_of, (DYN,)),
    }
    return [
        Function(name, None, (source,), result, convert, is_linear=name not in ("dyn", "type"))
        for name, (result, convert, sources) in taken.items()
        for source in sources
    ]


def _sizes() -> Sequence[Function]:
    return [
        function
        for kind in (STRING, BYTES, _LIST, _MAP)
        for function in (
            Function("size", None, (kind,), INT, containers.size, is_linear=False),
            Function("size", kind, (), INT, containers.size, is_linear=False),
        )
    ]


def _times() -> Sequence[Function]:
    functions = []
    for name in (*times.TIMESTAMP_GETTERS, "getMilliseconds"):
        if name == "getMilliseconds":
            implementation: Callable[..., int] = _milliseconds
        elif name in times.DURATION_GETTERS:
            implementation = _make_getter(name)
        else:
            implementation = _make_timestamp_getter(name)
        functions += [
            Function(name, TIMESTAMP, (), INT, implementation),
            Function(name, TIMESTAMP, (STRING,), INT, implementation),
        ]
        if name == "getMilliseconds" or name in times.DURATION_GETTERS:
            functions.append(Function(name, DURATION, (), INT, implementation))
    return functions


_ALL: Final = (
    *_conversions(),
    *_sizes(),
    *_times(),
    Function("contains", STRING, (STRING,), BOOL, strings.contains),
    Function("startsWith", STRING, (STRING,), BOOL, strings.starts_with, is_linear=False),
    Function("endsWith", STRING, (STRING,), BOOL, strings.ends_with, is_linear=False),
    Function("matches", STRING, (STRING,), BOOL, _matches, Regex),
    Function("matches", None, (STRING, STRING), BOOL, _matches, Regex),
    Function("charAt", STRING, (INT,), STRING, strings.char_at, is_linear=False),
    Function("indexOf", STRING, (STRING,), INT, strings.index_of),
    Function("indexOf", STRING, (STRING, INT), INT, strings.index_of),
    Function("join", _STRINGS, (), STRING, strings.join),
    Function("join", _STRINGS, (STRING,), STRING, strings.join),
    Function("lastIndexOf", STRING, (STRING,), INT, strings.last_index_of),
    Function("lastIndexOf", STRING, (STRING, INT), INT, strings.last_index_of),
    Function("lowerAscii", STRING, (), STRING, strings.lower_ascii),
    Function("replace", STRING, (STRING, STRING), STRING, strings.replace),
    Function("replace", STRING, (STRING, STRING, INT), STRING, strings.replace),
    Function("reverse", STRING, (), STRING, strings.reverse),
    Function("split", STRING, (STRING,), _STRINGS, strings.split),
    Function("split", STRING, (STRING, INT), _STRINGS, strings.split),
    Function("substring", STRING, (INT,), STRING, strings.substring),
    Function("substring", STRING, (INT, INT), STRING, strings.substring),
    Function("trim", STRING, (), STRING, strings.trim),
    Function("upperAscii", STRING, (), STRING, strings.upper_ascii),
    Function("email_domain", STRING, (), STRING, urls.email_domain),
    Function("host", STRING, (), STRING, urls.url_host),
    Function("host_in", STRING, (_STRINGS,), BOOL, urls.is_host_in),
    Function("private", STRING, (), BOOL, urls.is_private_url),
    Function("inside", STRING, (STRING,), BOOL, paths.is_inside),
    Function(
        "like", STRING, (STRING,), BOOL, paths.matches_glob, paths.Glob, requires_literal=False
    ),
    Function("during", TIMESTAMP, (STRING,), BOOL, schedules.is_during, schedules.Schedule),
)
STANDARD: Final[tuple[Function, ...]] = tuple(
    msgspec.structs.replace(function, checks_operands=True) for function in _ALL
)
"""CEL's standard functions, its string extension, and the functions for policies."""
