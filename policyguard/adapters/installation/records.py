"""What settings were before they were changed, so that they can be put back exactly.

A record holds the lines that a change replaced, and those it wrote. It lies in the user's own
state, for what it holds may be secret.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from policyguard.adapters.installation.settings import (
    SettingsError,
    read_settings,
    write_settings,
)


class ChangeRecord(msgspec.Struct, frozen=True):
    """One change: the lines before and after it.

    Of a rewritten entry also its path, and its members as they were. `was_empty` is for a file that
    was there without a text.
    """

    path: tuple[str, ...]
    members: dict[str, Any]
    before: str
    after: str
    was_empty: bool = False


Records = tuple[ChangeRecord, ...]
"""Those of one settings file, in the order in which the entries were rewritten."""


def record_change(
    path: tuple[str, ...], members: dict[str, Any], old: str, new: str
) -> ChangeRecord:
    """Return the record of a change of a settings file's text."""
    before, after = old.splitlines(keepends=True), new.splitlines(keepends=True)
    start = 0
    while start < min(len(before), len(after)) and before[start] == after[start]:
        start += 1
    end = 0
    most = min(len(before), len(after)) - start
    while end < most and before[-1 - end] == after[-1 - end]:
        end += 1
    old, new = ("".join(side[start : len(side) - end]) for side in (before, after))
    return ChangeRecord(path, members, old, new)


def undo(text: str, record: ChangeRecord) -> str | None:
    """Return a text with a change undone; None if what was written does not stand there once."""
    if not record.after or text.count(record.after) != 1:
        return None
    return text.replace(record.after, record.before)


def read_records(file: Path, settings: Path) -> Records:
    """Return what is recorded of a settings file. Raises `SettingsError`."""
    return _read(file).get(str(settings.resolve()), ())


def write_records(file: Path, settings: Path, records: Records) -> None:
    """Record what was changed in a settings file. Raises `SettingsError`."""
    kept = {**_read(file), str(settings.resolve()): records}
    kept = {name: one for name, one in sorted(kept.items()) if one}
    text = msgspec.json.format(msgspec.json.encode(kept), indent=2).decode() + "\n"
    write_settings(file, text if kept else "")


def _read(file: Path) -> dict[str, Records]:
    text = read_settings(file)
    try:
        return msgspec.json.decode(text or "{}", type=dict[str, Records])
    except msgspec.DecodeError as error:
        raise SettingsError(f"{file}: not a record of changes ({error}); remove it") from None
