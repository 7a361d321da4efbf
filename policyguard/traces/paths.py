"""What was named on the command line → the files to read."""

from __future__ import annotations

import glob
import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from policyguard.traces.item import TraceError


def expand(paths: Sequence[str | Path]) -> Iterator[Path]:
    """The files that paths stand for, each once, in the order named.

    A file stands for itself; a folder for all files under it, sorted, hidden ones left out; what
    is neither is taken as a glob (`**` crosses folders). What cannot be opened is among them:
    the reader says why. Raises `TraceError` for what matches nothing.
    """
    met: set[str] = set()
    for path in paths:
        for file in _files(Path(path)):
            place = real(file)
            if place not in met:
                met.add(place)
                yield file


def real(path: Path) -> str:
    """Where a path leads, links followed; of links in a circle, where they begin."""
    return os.path.realpath(path)  # Path's own raises RuntimeError for a circle


def among(output: Path, files: Iterable[Path]) -> bool:
    """Whether who writes there writes over one of the files."""
    return real(output) in map(real, files)


def _files(path: Path) -> Iterator[Path]:
    # os.path instead of Path: it answers no, rather than raise, where a folder is locked.
    if os.path.isdir(path):  # noqa: PTH112  see above
        yield from _under(path)
    elif os.path.lexists(path):
        yield path
    else:
        yield from _matching(path)


def _under(folder: Path) -> Iterator[Path]:
    """A folder's own files before those of its folders: a session before its sub-agents."""
    locked: list[OSError] = []
    for place, folders, names in os.walk(folder, onerror=locked.append):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        yield from (Path(place, name) for name in sorted(names) if not name.startswith("."))
    yield from (Path(error.filename) for error in locked)


def _matching(pattern: Path) -> Iterator[Path]:
    matches = sorted(glob.glob(str(pattern), recursive=True))  # noqa: PTH207  Path's own knows no absolute patterns
    if not matches:
        raise TraceError(f"no such file or folder, and no match: `{pattern}`")
    for match in matches:
        yield from _files(Path(match))
