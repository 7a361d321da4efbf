"""Paths named on the command line, expanded to the files to read."""

from __future__ import annotations

import glob
import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from policyguard.engines.remote_files import expand_address, is_remote
from policyguard.traces.item import TraceError
from policyguard.traces.tables.remote import replace_tables
from policyguard.traces.tables.table import find_format, list_files


def expand(paths: Sequence[str | Path]) -> Iterator[Path]:
    """Yield the files that paths stand for, each once, in the order named.

    A folder stands for all files in it, sorted, without hidden ones; in it the folder of a Delta or
    Iceberg table stands for the files of the table. A path that does not exist is a glob (`**`
    crosses folders). Files that cannot be opened are included: the reader reports
    them. An address such as `s3://…` is read by fsspec. Raises `TraceError` if a path matches
    nothing.
    """
    seen: set[str] = set()
    for path in paths:
        for file in _expand_remote(str(path)) if is_remote(path) else _expand_path(Path(path)):
            real = resolve_path(file)
            if real not in seen:
                seen.add(real)
                yield file


def _expand_remote(address: str) -> Iterator[Path]:
    try:
        yield from replace_tables([*expand_address(address)])
    except OSError as error:
        raise TraceError(f"{address}: {error}") from None


def resolve_path(path: Path) -> str:
    """Return the path with all links followed; a circle of links stays as it is."""
    return os.path.realpath(path)  # Path.resolve raises RuntimeError for a circle


def is_input_file(output: Path, files: Iterable[Path]) -> bool:
    """Return whether writing to `output` would overwrite one of the files."""
    return resolve_path(output) in map(resolve_path, files)


def _expand_path(path: Path) -> Iterator[Path]:
    # os.path.isdir returns False for a path in a locked folder, where Path.is_dir raises.
    if os.path.isdir(path):  # noqa: PTH112  see above
        yield from _expand_folder(path)
    elif os.path.lexists(path):
        yield path
    else:
        yield from _expand_glob(path)


def _expand_folder(folder: Path) -> Iterator[Path]:
    """Yield a folder's own files before those of its folders: a session before its sub-agents."""
    errors: list[OSError] = []
    for parent, folders, names in os.walk(folder, onerror=errors.append):
        form = find_format(Path(parent), folders)
        if form is not None:
            folders.clear()
            yield from list_files(Path(parent), form)
            continue
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        yield from (Path(parent, name) for name in sorted(names) if not name.startswith("."))
    yield from (Path(error.filename) for error in errors)


def _expand_glob(pattern: Path) -> Iterator[Path]:
    matches = sorted(glob.glob(str(pattern), recursive=True))  # noqa: PTH207  Path.glob rejects absolute patterns
    if not matches:
        raise TraceError(f"no such file or folder, and no match: `{pattern}`")
    for match in matches:
        yield from _expand_path(Path(match))
