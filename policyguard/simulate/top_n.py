"""What is kept of many things: those that matter most, and no more than was asked for."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator
from typing import Any, Generic, TypeVar

T = TypeVar("T")
RankKey = tuple[int, ...]
"""What matters most has the least."""


class TopN(Generic[T]):
    """At most `most` things, those with the least keys, in whatever order they come."""

    def __init__(self, max_items: int) -> None:
        self._max_items = max_items
        # A heap whose top is the greatest key, the next to go. The number keeps things of the same
        # key from being compared.
        self._heap: list[tuple[RankKey, int, Any]] = []
        self._offered = 0
        self.left_out = 0

    def offer(self, key: RankKey, make: Callable[[], T]) -> None:
        """Keep what `make` gives, if it is among the first so far."""
        mirrored = tuple(-part for part in key)
        self._offered += 1
        if len(self._heap) < self._max_items:
            heapq.heappush(self._heap, (mirrored, -self._offered, make()))
            return
        self.left_out += 1
        if self._heap and mirrored > self._heap[0][0]:
            heapq.heapreplace(self._heap, (mirrored, -self._offered, make()))

    def merge(self, other: TopN[T]) -> None:
        """Keep what another has kept, as if all had been offered to one."""
        for mirrored, _, item in sorted(other._heap, key=lambda entry: entry[:2], reverse=True):
            self.offer(tuple(-part for part in mirrored), lambda item=item: item)  # type: ignore[misc]  # mypy cannot infer a lambda with a default
        self.left_out += other.left_out

    def items(self) -> Iterator[tuple[RankKey, T]]:
        """What was kept with its keys, the least first."""
        for mirrored, _, item in sorted(self._heap, key=lambda entry: entry[:2], reverse=True):
            yield tuple(-part for part in mirrored), item
