"""Kinds of errors that no signature matches, and how often each occurs."""

from __future__ import annotations

import heapq
from collections.abc import Iterator

import msgspec

from policyguard.report.replay.figures import UnmatchedFigures

MAX_KINDS = 4096
"""Kinds that one replay distinguishes."""

ReadOrder = tuple[int, ...]
"""A position in everything that a replay reads; lower was read earlier."""


class _Kind(msgspec.Struct):
    order: ReadOrder
    figures: UnmatchedFigures


class ErrorKinds:
    """Counts of errors by kind, each identified by its fingerprint; `total` counts all.

    Beyond `MAX_KINDS` the kinds with the lowest fingerprints are kept, with exact counts: the
    sample does not depend on the order of the errors or the number of workers.
    """

    def __init__(self) -> None:
        self._kinds: dict[str, _Kind] = {}
        self._max_fingerprint = ""
        self.total = 0

    def add(self, fingerprint: str, order: ReadOrder, figures: UnmatchedFigures) -> None:
        """Count errors of one kind; `figures` locate the first of them."""
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
        """Add the counts of another part of the replay."""
        total = self.total + other.total
        for kind, known in other._kinds.items():
            self.add(kind, known.order, known.figures)
        self.total = total  # includes kinds that are not kept

    def __len__(self) -> int:
        return len(self._kinds)

    def most_frequent(self, max_kinds: int) -> Iterator[UnmatchedFigures]:
        """Return the most frequent kinds; among equals, those that were read first."""
        ranked = heapq.nsmallest(
            max_kinds, self._kinds.values(), key=lambda kind: (-kind.figures.hits, kind.order)
        )
        return (kind.figures for kind in ranked)
