"""A set of strings that only says whether it has one, and how many it has."""

from __future__ import annotations

from collections.abc import Callable


class KeySet:
    """A list of strings to the checker; of its operations there are only `in` and `size`."""

    __slots__ = ("count", "has")

    def __init__(self, has: Callable[[str], bool], count: Callable[[], int]) -> None:
        self.has = has
        self.count = count

    def __len__(self) -> int:
        return self.count()
