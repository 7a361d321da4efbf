"""The discovery of test files. Imports little: the pytest plugin uses it for every file."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

_MAX_BYTES = 1 << 24
"""More than the largest file that is read as policy tests."""
_NAMES = ("tests.yaml", "tests.yml")
_SUFFIXES = (".tests.yaml", ".tests.yml")

POLICIES = Path("policies")
"""The folder to search first by default."""


class NothingToTestError(Exception):
    """No test file was found; the message says where."""


def find_tests(paths: Sequence[Path]) -> list[Path]:
    """Return the test files at these paths, each once; a file that is named may have any name.

    By default those below `policies/`, or else below the current folder. Raises
    `NothingToTestError`.
    """
    if not paths:
        found = list(_find_below(POLICIES)) or list(_find_below(Path()))
        if not found:
            raise NothingToTestError(
                "no tests.yaml or *.tests.yaml below policies/ or the current folder; pass a path"
            )
        return found
    files: list[Path] = []
    for path in paths:
        found = list(_find_at(path))
        if not found:
            raise NothingToTestError(
                f"no tests.yaml or *.tests.yaml in `{path}`"
                if path.is_dir()
                else f"no such file: `{path}`; pass a file or folder, not the name of a policy"
            )
        files += [file for file in found if file not in files]
    return files


def has_tests_name(name: str) -> bool:
    """Return whether a file of this name may hold policy tests."""
    return name in _NAMES or name.endswith(_SUFFIXES)


def has_tests_keys(file: Path) -> bool:
    """Return whether the file has the two keys of every test file.

    Other programs use the same file names.
    """
    try:
        if not file.is_file():  # a pipe would wait for its writer
            return False
        with file.open("rb") as handle:  # without our modules: most projects have no policy tests
            data = handle.read(_MAX_BYTES)
    except OSError:
        return False
    plain = data.replace(b"\0", b"")  # UTF-16
    if b"policy" not in plain or b"tests" not in plain:
        return False
    from policyguard.engines.yaml_top_keys import has_top_keys  # rarely needed

    return has_top_keys(data, "policy", "tests")


def _find_at(path: Path) -> Iterator[Path]:
    if path.is_dir():
        yield from _find_below(path)
    elif path.exists():
        yield path


def _find_below(folder: Path) -> Iterator[Path]:
    for parent, folders, names in os.walk(folder):
        folders[:] = sorted(_searchable_folders(Path(parent), folders))
        for name in sorted(names):
            file = Path(parent, name)
            # Only policyguard uses the suffix: with a misspelt key such a file is an error.
            if name.endswith(_SUFFIXES) or (name in _NAMES and has_tests_keys(file)):
                yield file


def _searchable_folders(parent: Path, folders: Iterable[str]) -> Iterator[str]:
    """Yield the folders to search: neither hidden nor installed packages."""
    for name in folders:
        installed = name == "node_modules" or (parent / name / "pyvenv.cfg").exists()
        if not name.startswith(".") and not installed:
            yield name
