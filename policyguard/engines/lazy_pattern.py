"""Patterns of Python's `re` that are compiled by their first use.

Compiling takes longer than importing the module around it, and a check needs few of them.
"""

from __future__ import annotations

import re
from typing import Any, AnyStr, cast


class _LazyPattern:
    """Stands for a pattern: the first use of a method compiles it, and keeps the method."""

    def __init__(self, source: str | bytes, flags: int) -> None:
        self._source = source
        self._flags = flags

    def __getattr__(self, name: str) -> Any:
        value = getattr(re.compile(self._source, self._flags), name)
        setattr(self, name, value)
        return value


def lazy_pattern(source: AnyStr, flags: int = 0) -> re.Pattern[AnyStr]:
    """Return a pattern like `re.compile`; an invalid one raises `re.error` when it is used."""
    return cast("re.Pattern[AnyStr]", _LazyPattern(source, flags))
