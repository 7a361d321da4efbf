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
        for file in _expand_path(Path(path)):
            place = resolve_path(file)
            if place not in met:
                met.add(place)
                yield file


def resolve_path(path: Path) -> str:
    """Where a path leads, links followed; of links in a circle, where they begin."""
    return os.path.realpath(path)  # Path's own raises RuntimeError for a circle


def is_input_file(output: Path, files: Iterable[Path]) -> bool:
    """Whether who writes there writes over one of the files."""
    return resolve_path(output) in map(resolve_path, files)


def _expand_path(path: Path) -> Iterator[Path]:
    # os.path instead of Path: it answers no, rather than raise, where a folder is locked.
    if os.path.isdir(path):  # noqa: PTH112  see above
        yield from _walk_folder(path)
    elif os.path.lexists(path):
        yield path
    else:
        yield from _expand_glob(path)


def _walk_folder(folder: Path) -> Iterator[Path]:
    """A folder's own files before those of its folders: a session before its sub-agents."""
    locked: list[OSError] = []
    for place, folders, names in os.walk(folder, onerror=locked.append):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        yield from (Path(place, name) for name in sorted(names) if not name.startswith("."))
    yield from (Path(error.filename) for error in locked)


def _expand_glob(pattern: Path) -> Iterator[Path]:
    matches = sorted(glob.glob(str(pattern), recursive=True))  # noqa: PTH207  Path's own knows no absolute patterns
    if not matches:
        raise TraceError(f"no such file or folder, and no match: `{pattern}`")
    for match in matches:
        yield from _expand_path(Path(match))
