"""What an importer is."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

from policyguard.traces.containers.source import Sample, Source
from policyguard.traces.item import Item

SeenIds = dict[str, str]
"""Runs that may stand in more than one file: the id of each met so far → the file it was in."""


class Importer(Protocol):
    """One format: a module with these three names."""

    FORMAT: str
    """The format's name in reports."""

    def detect(self, sample: Sample) -> bool:
        """Whether the sample is of this format."""
        ...

    def read(self, source: Source, seen_ids: SeenIds) -> Iterator[Item]:
        """The sessions of a detected file, and what was passed over. Raises `OSError` only."""
        ...
