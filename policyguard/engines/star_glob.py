"""Globs of names in which only `*` stands for other text. They take no regular expression."""

from __future__ import annotations


class StarGlob:
    """A glob with stars, each for any text, also none."""

    __slots__ = ("_first", "_inner", "_last")

    def __init__(self, glob: str) -> None:
        """Read `glob`, which has at least one star."""
        self._first, *self._inner, self._last = glob.split("*")

    def matches(self, name: str) -> bool:
        """Whether the glob matches the whole `name`."""
        start, end = len(self._first), len(name) - len(self._last)
        if start > end or not (name.startswith(self._first) and name.endswith(self._last)):
            return False
        for part in self._inner:
            found = name.find(part, start, end)
            if found < 0:
                return False
            start = found + len(part)
        return True
