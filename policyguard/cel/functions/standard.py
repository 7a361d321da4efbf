"""The functions that every expression may call."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import msgspec

from policyguard.cel.functions import calendar, paths, queries, schedules, urls
from policyguard.cel.functions.function import Function
from policyguard.cel.runtime import containers, conversions, strings
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
    list_of,
    lower_case_of,
    map_of,
)
from policyguard.cel.types.values import no_such_overload, type_of
from policyguard.engines.regex import Regex

_LIST: Final = list_of(DYN)
_MAP: Final = map_of(DYN, DYN)
_STRINGS: Final = list_of(STRING)
_PRINTABLE: Final = (STRING, BOOL, INT, UINT, DOUBLE, BYTES, TIMESTAMP, DURATION)


def _matches(text: Any, pattern: Regex) -> bool:
    if text.__class__ is not str:
        raise no_such_overload("matches", text)
    return pattern.search(text)


def _conversions() -> Iterator[Function]:
    for name, result, convert, sources in (
        ("bool", BOOL, conversions.to_bool, (BOOL, STRING)),
        ("bytes", BYTES, conversions.to_bytes, (BYTES, STRING)),
        ("double", DOUBLE, conversions.to_double, (INT, UINT, DOUBLE, STRING)),
        ("duration", DURATION, conversions.to_duration, (DURATION, STRING)),
        ("int", INT, conversions.to_int, (INT, UINT, DOUBLE, STRING, TIMESTAMP)),
        ("string", STRING, conversions.to_string, _PRINTABLE),
        ("timestamp", TIMESTAMP, conversions.to_timestamp, (TIMESTAMP, STRING, INT)),
        ("uint", UINT, conversions.to_uint, (INT, UINT, DOUBLE, STRING)),
    ):
        for source in sources:
            yield Function(name, None, (source,), result, convert)
    yield Function("dyn", None, (DYN,), DYN, conversions.identity, is_linear=False)
    yield Function("type", None, (DYN,), TYPE, type_of, is_linear=False)


def _sizes() -> Iterator[Function]:
    for kind in (STRING, BYTES, _LIST, _MAP):
        yield Function("size", None, (kind,), INT, containers.size, is_linear=False)
        yield Function("size", kind, (), INT, containers.size, is_linear=False)


def _getters() -> Iterator[Function]:
    for name, implementation in calendar.GETTERS.items():
        yield Function(name, TIMESTAMP, (), INT, implementation)
        check = calendar.check_zone
        yield Function(
            name, TIMESTAMP, (STRING,), INT, implementation, check, requires_literal=False
        )
        if name in calendar.DURATION_GETTERS:
            yield Function(name, DURATION, (), INT, implementation)


def _queries() -> Iterator[Function]:
    for parameters, prepare in (((), None), ((STRING,), queries.check_dialect)):
        yield Function(
            "sql",
            STRING,
            parameters,
            queries.STATEMENTS,
            queries.read_sql,
            prepare,
            library=queries.LIBRARY,
            extra="sql",
        )


_DEFINITIONS: Final = (
    *_conversions(),
    *_sizes(),
    *_getters(),
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
    Function("email_domain", STRING, (), lower_case_of("domains"), urls.email_domain),
    Function("host", STRING, (), lower_case_of("hosts"), urls.url_host),
    Function(
        "host_in",
        STRING,
        (_STRINGS,),
        BOOL,
        urls.is_host_in,
        urls.check_host_pattern,
        requires_literal=False,
    ),
    Function("port", STRING, (), INT, urls.url_port),
    Function("private", STRING, (), BOOL, urls.is_private_url),
    Function("scheme", STRING, (), STRING, urls.url_scheme),
    Function(
        "inside", STRING, (STRING,), BOOL, paths.is_inside, paths.check_root, requires_literal=False
    ),
    Function(
        "like", STRING, (STRING,), BOOL, paths.matches_glob, paths.Glob, requires_literal=False
    ),
    *_queries(),
    Function("during", TIMESTAMP, (STRING,), BOOL, schedules.is_during, schedules.Schedule),
)
STANDARD: Final[tuple[Function, ...]] = tuple(
    msgspec.structs.replace(function, checks_operands=True) for function in _DEFINITIONS
)
"""CEL's standard functions, its string extension, and the functions for policies."""
