"""The interface of an importer."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

from policyguard.traces.containers.source import Sample, Source
from policyguard.traces.item import Item

SeenIds = dict[str, str]
"""Ids of runs that several files may contain, each with the file it was first read from."""


class Importer(Protocol):
    """An importer for one format: a module with these three names."""

    FORMAT: str
    """The format's name in reports."""

    def detect(self, sample: Sample) -> bool:
        """Return whether the sample has this format."""
        ...

    def read(self, source: Source, seen_ids: SeenIds) -> Iterator[Item]:
        """Yield the events and skipped parts of a detected file. Raise `OSError` only."""
        ...
