"""Files that a tests file refers to: policies and recordings."""

from __future__ import annotations

import os
from pathlib import Path

_TESTS_FOLDER = "tests"
"""The name of a folder that holds tests, next to what they test."""


def resolve_reference(file: str, name: str) -> Path:
    """Return the file that `name` refers to in the tests file `file`.

    It is relative to the tests file's folder, or to the parent of a folder called `tests` that has
    no such file.
    """
    folder = Path(file).parent
    in_folder = _join(folder, name)
    in_parent = _join(folder.parent if folder.name else Path(".."), name)
    folder_name = folder.name or Path.cwd().name
    if folder_name == _TESTS_FOLDER and not in_folder.exists() and in_parent.exists():
        return in_parent
    return in_folder


def _join(folder: Path, name: str) -> Path:
    return Path(os.path.normpath(os.path.join(folder, name)))  # noqa: PTH118 - pathlib keeps `..`
