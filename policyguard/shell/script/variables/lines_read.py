"""Fields of a line, as `read` splits it."""

from __future__ import annotations

import re

from policyguard.shell.command_line import ANY, MANY
from policyguard.shell.words import is_static

_WHITE = frozenset(" \t\n")
_GAP = re.compile(r"[ \t]+")


def split_line(line: str, separators: str, count: int) -> list[str]:
    """Return `count` fields of a line; `MANY` for each if it is not known how they are split.

    Those that a line lacks are empty. `separators` are the characters of `IFS`.
    """
    unknown = [MANY] * count
    if ANY in line or MANY in line or (count > 1 and not is_static(line)):
        return unknown  # there may be separators in it
    if not separators:
        return [line, *[""] * (count - 1)]
    if _WHITE.issuperset(separators):
        if not {" ", "\t"}.issubset(separators) and not _WHITE.isdisjoint(line):
            return unknown
        fields = [line.strip(" \t")] if count == 1 else _GAP.split(line.strip(" \t"), count - 1)
    elif len(separators) == 1 and separators != MANY:
        fields = line.split(separators)
        if len(fields) > 1 and (len(fields) > count or not fields[-1]):
            return unknown  # the last field has the rest, perhaps without its last separator
    else:
        return unknown
    return [*fields, *[""] * (count - len(fields))]
