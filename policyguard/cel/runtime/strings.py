"""Functions on strings, by code points.

`contains`, `startsWith`, `endsWith` are CEL's own (cel-spec langdef.md, "Standard Definitions");
the rest are the specification's string extension (cel-spec tests `string_ext`), without `format`
and `quote`. Results are limited by `cost_limits`.
"""

from __future__ import annotations

from typing import Any, Final

from policyguard.cel.errors import OperationError
from policyguard.cel.runtime.cost_limits import COST_LIMITS
from policyguard.cel.runtime.operators import check_list_length, check_string_length
from policyguard.cel.types.values import no_such_overload

_OMITTED: Final = object()
"""Marks an omitted argument: None would be CEL's null."""
_LOWER: Final = {code: code + 32 for code in range(ord("A"), ord("Z") + 1)}
_UPPER: Final = {code: code - 32 for code in range(ord("a"), ord("z") + 1)}
# Unicode's White_Space property. Python's `strip` also removes the separators U+001C to U+001F.
_WHITE_SPACE: Final = (
    "\t\n\v\f\r \x85\xa0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a"
    "\u2028\u2029\u202f\u205f\u3000"
)


def _require_strings(name: str, *values: Any) -> None:
    for value in values:
        if value.__class__ is not str:
            raise no_such_overload(name, *values)


def _require_position(name: str, value: Any) -> int:
    if value.__class__ is not int:
        raise no_such_overload(name, value)
    position: int = value
    return position


def _out_of_range(position: int, text: str) -> OperationError:
    message = f"position {position} is out of range for a string of {len(text)}"
    return OperationError("index-out-of-range", message)


def contains(text: Any, part: Any) -> bool:
    """`text.contains(part)`."""
    _require_strings("contains", text, part)
    return part in text


def starts_with(text: Any, prefix: Any) -> bool:
    """`text.startsWith(prefix)`."""
    _require_strings("startsWith", text, prefix)
    return bool(text.startswith(prefix))


def ends_with(text: Any, suffix: Any) -> bool:
    """`text.endsWith(suffix)`."""
    _require_strings("endsWith", text, suffix)
    return bool(text.endswith(suffix))


def lower_ascii(text: Any) -> str:
    """`text.lowerAscii()`: only A to Z become lower case."""
    _require_strings("lowerAscii", text)
    return str(text.lower() if text.isascii() else text.translate(_LOWER))


def upper_ascii(text: Any) -> str:
    """`text.upperAscii()`: only a to z become upper case."""
    _require_strings("upperAscii", text)
    return str(text.upper() if text.isascii() else text.translate(_UPPER))


def trim(text: Any) -> str:
    """`text.trim()`: without white space (as Unicode defines it) at both ends."""
    _require_strings("trim", text)
    return str(text.strip(_WHITE_SPACE))


def reverse(text: Any) -> str:
    """`text.reverse()`: the code points in reverse order."""
    _require_strings("reverse", text)
    return str(text[::-1])


def char_at(text: Any, position: Any) -> str:
    """`text.charAt(position)`; empty at the very end."""
    _require_strings("charAt", text)
    index = _require_position("charAt", position)
    if not 0 <= index <= len(text):
        raise _out_of_range(index, text)
    return str(text[index : index + 1])


def substring(text: Any, start: Any, end: Any = _OMITTED) -> str:
    """`text.substring(start)` or `text.substring(start, end)`; the end is exclusive."""
    _require_strings("substring", text)
    first = _require_position("substring", start)
    last = len(text) if end is _OMITTED else _require_position("substring", end)
    for position in (first, last):
        if not 0 <= position <= len(text):
            raise _out_of_range(position, text)
    if first > last:
        message = f"a substring cannot go from {first} to {last}"
        raise OperationError("index-out-of-range", message)
    return str(text[first:last])


def index_of(text: Any, part: Any, offset: Any = 0) -> int:
    """`text.indexOf(part)` or `text.indexOf(part, offset)`; -1 if absent."""
    _require_strings("indexOf", text, part)
    first = _require_position("indexOf", offset)
    if not 0 <= first <= len(text):
        raise _out_of_range(first, text)
    return int(text.find(part, first))


def last_index_of(text: Any, part: Any, offset: Any = _OMITTED) -> int:
    """`text.lastIndexOf(part)`, or the last one that begins at `offset` or before; -1 if absent."""
    _require_strings("lastIndexOf", text, part)
    last = len(text) if offset is _OMITTED else _require_position("lastIndexOf", offset)
    if not 0 <= last <= len(text):
        raise _out_of_range(last, text)
    return int(text.rfind(part, 0, last + len(part)))


def replace(text: Any, old: Any, new: Any, count: Any = -1) -> str:
    """`text.replace(old, new)`, or only the first `count` of them."""
    _require_strings("replace", text, old, new)
    limit = _require_position("replace", count)
    occurrences: int = text.count(old)
    if limit >= 0:
        occurrences = min(occurrences, limit)
    check_string_length(len(text) + occurrences * (len(new) - len(old)))
    return str(text.replace(old, new, occurrences))


def split(text: Any, separator: Any, count: Any = -1) -> list[str]:
    """`text.split(separator)`, or into `count` parts at most; without separator, everywhere."""
    _require_strings("split", text, separator)
    limit = _require_position("split", count)
    if limit == 0:
        return []
    if not separator:
        parts = len(text) if limit < 0 else min(limit, len(text))
        check_list_length(parts)
        return [*text[: parts - 1], text[parts - 1 :]] if parts else []
    if limit < 0:
        check_list_length(text.count(separator) + 1)
    else:
        check_list_length(min(limit, COST_LIMITS.max_list_length))
    result: list[str] = text.split(separator, limit - 1 if limit > 0 else -1)
    return result


def join(parts: Any, separator: Any = "") -> str:
    """`parts.join()` or `parts.join(separator)`."""
    _require_strings("join", separator)
    if parts.__class__ is not list and parts.__class__ is not tuple:
        raise no_such_overload("join", parts)
    _require_strings("join", *parts)
    check_string_length(sum(map(len, parts)) + len(separator) * len(parts))
    return str(separator.join(parts))
