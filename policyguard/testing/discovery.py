"""Where the tests files are. Light: the pytest plugin asks this of every file it meets."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from policyguard.model.errors import PolicyguardError

_NAMES = ("tests.yaml", "tests.yml")
_SUFFIXES = (".tests.yaml", ".tests.yml")

POLICIES = Path("policies")
"""The folder that is looked through first where no path is given."""


class NothingToTestError(PolicyguardError):
    """No tests file was found; the message says where it was looked for."""


def find_tests(paths: Sequence[Path]) -> list[Path]:
    """The tests files at these paths, each once; a file named outright is one by any name.

    Without paths those below `policies/`, or if there are none, below the current folder. Raises
    `NothingToTestError`.
    """
    if not paths:
        found = list(_find_below(POLICIES)) or list(_find_below(Path()))
        if not found:
            raise NothingToTestError(
                "no tests.yaml and no *.tests.yaml below policies/ or here; name a file"
            )
        return found
    files: list[Path] = []
    for path in paths:
        at = list(_find_at(path))
        if not at:
            raise NothingToTestError(
                f"no tests in `{path}`: they stand in tests.yaml or *.tests.yaml"
                if path.is_dir()
                else f"no such file: `{path}`"
            )
        files += [file for file in at if file not in files]
    return files


def has_tests_name(name: str) -> bool:
    """Whether a file of this name may hold policy tests."""
    return name in _NAMES or name.endswith(_SUFFIXES)


def has_tests_keys(file: Path) -> bool:
    """Whether the file has the two keys that every tests file has.

    Files of that name belong to other programs as well.
    """
    try:
        data = file.read_bytes()
    except OSError:
        return False
    plain = data.replace(b"\0", b"")  # UTF-16 has zeros
    if b"policy" not in plain or b"tests" not in plain:
        return False
    from policyguard.engines.yaml_top_keys import has_top_keys  # few files get here

    return has_top_keys(data, "policy", "tests")


def _find_at(path: Path) -> Iterator[Path]:
    if path.is_dir():
        yield from _find_below(path)
    elif path.exists():
        yield path


def _find_below(folder: Path) -> Iterator[Path]:
    for place, folders, names in os.walk(folder):
        folders[:] = sorted(_searchable_folders(Path(place), folders))
        for name in sorted(names):
            file = Path(place, name)
            # The longer name is ours alone: a key misspelt in it is an error, not a reason to
            # pass over it.
            if name.endswith(_SUFFIXES) or (name in _NAMES and has_tests_keys(file)):
                yield file


def _searchable_folders(place: Path, folders: Iterable[str]) -> Iterator[str]:
    """The folders that are looked into: not hidden ones, nor what is installed."""
    for name in folders:
        installed = name == "node_modules" or (place / name / "pyvenv.cfg").exists()
        if not name.startswith(".") and not installed:
            yield name
