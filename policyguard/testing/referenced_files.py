"""Files that a tests file names: policies and recordings."""

from __future__ import annotations

import os
from pathlib import Path

_TESTS_FOLDER = "tests"
"""The name of a folder that tests are put into, apart from what they test."""


def resolve_reference(file: str, name: str) -> Path:
    """The file that `name` means in the tests file `file`.

    It is seen from the tests file's folder; where that is called `tests` and has no such file,
    from the folder around it.
    """
    folder = Path(file).parent
    here = _join(folder, name)
    around = _join(folder.parent if folder.name else Path(".."), name)
    apart = folder.name == _TESTS_FOLDER or (not folder.name and Path.cwd().name == _TESTS_FOLDER)
    return around if apart and not here.exists() and around.exists() else here


def _join(folder: Path, name: str) -> Path:
    return Path(os.path.normpath(os.path.join(folder, name)))  # noqa: PTH118 - pathlib keeps `..`
