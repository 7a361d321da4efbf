"""Lookup of one call in a journal or trace."""

from __future__ import annotations

from pathlib import Path

from policyguard.model.event import Admitted, Completed
from policyguard.traces.reader import Reader


def find_call(file: Path, call: str) -> tuple[Admitted | None, Completed | None]:
    """Return the call and its result, None for either that is missing."""
    admitted: Admitted | None = None
    for item in Reader().read(file) if file.is_file() else ():
        if isinstance(item, Admitted) and item.call == call:
            admitted = item
        elif isinstance(item, Completed) and item.call == call:
            return admitted, item
    return admitted, None
