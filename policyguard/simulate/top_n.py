"""The first N of many items, by rank."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator
from typing import Any, Generic, TypeVar

T = TypeVar("T")
RankKey = tuple[int, ...]
"""Lower keys rank higher."""


class TopN(Generic[T]):
    """The `max_items` items with the lowest keys, in whatever order they are offered."""

    def __init__(self, max_items: int) -> None:
        self._max_items = max_items
        # The top of the heap is the highest key, the next to drop. The number breaks ties, so that
        # items are never compared.
        self._heap: list[tuple[RankKey, int, Any]] = []
        self._offered = 0
        self.left_out = 0

    def offer(self, key: RankKey, make: Callable[[], T]) -> None:
        """Keep the item that `make` returns, if its key is among the lowest so far."""
        negated = tuple(-part for part in key)
        self._offered += 1
        if len(self._heap) < self._max_items:
            heapq.heappush(self._heap, (negated, -self._offered, make()))
            return
        self.left_out += 1
        if self._heap and negated > self._heap[0][0]:
            heapq.heapreplace(self._heap, (negated, -self._offered, make()))

    def merge(self, other: TopN[T]) -> None:
        """Merge the items of another, as if all had been offered to this one."""
        for negated, _, item in sorted(other._heap, key=lambda entry: entry[:2], reverse=True):
            self.offer(tuple(-part for part in negated), lambda item=item: item)  # type: ignore[misc]  # mypy cannot infer a lambda with a default
        self.left_out += other.left_out

    def items(self) -> Iterator[tuple[RankKey, T]]:
        """Return the kept items with their keys, lowest first."""
        for negated, _, item in sorted(self._heap, key=lambda entry: entry[:2], reverse=True):
            yield tuple(-part for part in negated), item
