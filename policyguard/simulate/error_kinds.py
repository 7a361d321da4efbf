"""Kinds of errors that no signature knows, and how often each occurs."""

from __future__ import annotations

import heapq
from collections.abc import Iterator

import msgspec

from policyguard.report.replay.figures import UnmatchedFigures

MAX_KINDS = 4096
"""Kinds that are told apart in one replay."""

ReadOrder = tuple[int, ...]
"""Where something stands in a replay: what was read first has the least."""


class _Kind(msgspec.Struct):
    order: ReadOrder
    figures: UnmatchedFigures


class ErrorKinds:
    """Counts errors by kind, each known by its fingerprint; `total` counts all.

    Beyond `MOST` kinds those with the least fingerprints are kept, and their counts stay exact: a
    sample that is the same in whatever order the errors come, and by how many workers.
    """

    def __init__(self) -> None:
        self._kinds: dict[str, _Kind] = {}
        self._max_fingerprint = ""
        self.total = 0

    def add(self, fingerprint: str, order: ReadOrder, figures: UnmatchedFigures) -> None:
        """Count errors of one kind; `figures` tell where the first of them stands."""
        self.total += figures.hits
        known = self._kinds.get(fingerprint)
        if known is None:
            if len(self._kinds) >= MAX_KINDS:
                if fingerprint > self._max_fingerprint:
                    return
                del self._kinds[self._max_fingerprint]
            self._kinds[fingerprint] = _Kind(order, figures)
            if len(self._kinds) >= MAX_KINDS:
                self._max_fingerprint = max(self._kinds)
            return
        hits = known.figures.hits + figures.hits
        if order < known.order:
            known.order, known.figures = order, figures
        known.figures.hits = hits

    def merge(self, other: ErrorKinds) -> None:
        """Count what another has counted."""
        total = self.total + other.total
        for kind, known in other._kinds.items():
            self.add(kind, known.order, known.figures)
        self.total = total  # also of kinds that are not kept

    def __len__(self) -> int:
        return len(self._kinds)

    def most_frequent(self, max_kinds: int) -> Iterator[UnmatchedFigures]:
        """The most frequent kinds, and among equals those that came first."""
        ranked = heapq.nsmallest(
            max_kinds, self._kinds.values(), key=lambda kind: (-kind.figures.hits, kind.order)
        )
        return (kind.figures for kind in ranked)
