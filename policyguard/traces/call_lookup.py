"""What a journal or trace tells of one call."""

from __future__ import annotations

from pathlib import Path

from policyguard.model.event import Admitted, Completed
from policyguard.traces.reader import Reader


def find_call(file: Path, call: str) -> tuple[Admitted | None, Completed | None]:
    """The call and its result; None for what the file does not have, or where there is no file."""
    admitted: Admitted | None = None
    for item in Reader().read(file) if file.is_file() else ():
        if isinstance(item, Admitted) and item.call == call:
            admitted = item
        elif isinstance(item, Completed) and item.call == call:
            return admitted, item
    return admitted, None
