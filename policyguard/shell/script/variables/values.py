"""What a variable may stand for: texts, and words of arrays."""

from __future__ import annotations

import msgspec

from policyguard.engines.lazy_pattern import lazy_pattern
from policyguard.shell.command_line import GLOB, MANY
from policyguard.shell.folders import Position
from policyguard.shell.script.variables.positional import Positional
from policyguard.shell.words import is_static

Value = str | tuple[str, ...]
"""A text, or the words of an array."""
Values = tuple[Value, ...]
"""What a variable may stand for: one of these, or anything if they are `UNKNOWN`."""
UNKNOWN: Values = (MANY,)
Declared = dict[str, tuple[Values | None, bool]]
"""What variables were before a function declared them, and whether it did for certain."""
WHITE = lazy_pattern(r"[ \t\n]+")
"""What separates the words of a value, unless `IFS` does."""
_MAX_CHARS = 4096


class Kept(msgspec.Struct, frozen=True, gc=False):
    """The values of all variables at some place of a text."""

    values: dict[str, Values]
    positional: Positional | None
    losses: int
    """How often variables were lost for good until then."""
    exported: frozenset[str]
    hidden: int
    """How many names had been hidden until then."""
    position: Position


def without_patterns(value: Value) -> Value:
    """Return a value in which a star is one; a file name pattern of an array stands for names."""
    return value.replace(GLOB, "*") if isinstance(value, str) else value


def append(value: Value, more: Value) -> Value:
    """Return what `value` is after `+=`; an array becomes longer by words."""
    if isinstance(value, tuple) and isinstance(more, tuple):
        return (*value, *more)
    if isinstance(value, str) and isinstance(more, str) and MANY not in value:
        return value + more
    return MANY


def is_known(value: Value) -> bool:
    """Whether nothing of a value is unknown."""
    return is_static(value) if isinstance(value, str) else all(map(is_static, value))


def is_long(value: Value) -> bool:
    """Whether a value is too long to be kept."""
    return len(value) + sum(map(len, value)) > _MAX_CHARS
