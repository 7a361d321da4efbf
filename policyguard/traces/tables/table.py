"""Folders that are tables: which of their files are the table's is said by its own metadata.

A table is not trusted: files that it names outside its folder are refused.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from importlib import import_module
from pathlib import Path
from urllib.parse import unquote, urlsplit

import msgspec

from policyguard.traces.item import TraceError


class TableFormat(msgspec.Struct, frozen=True):
    """A format of tables: its name, the module that lists the files, what that needs to have."""

    name: str
    module: str
    extra: str


_DELTA = TableFormat("Delta", "policyguard.traces.tables.delta", "delta")
_ICEBERG = TableFormat("Iceberg", "policyguard.traces.tables.iceberg", "iceberg")


def find_format(folder: Path, folders: Sequence[str]) -> TableFormat | None:
    """Return the format of the table that a folder with these folders is; None if it is none."""
    if "_delta_log" in folders:
        return _DELTA
    if "metadata" not in folders:
        return None
    try:
        names = os.listdir(folder / "metadata")  # noqa: PTH208 - names, not paths
    except OSError:
        return None
    return _ICEBERG if any(name.endswith(".metadata.json") for name in names) else None


def list_files(folder: Path, form: TableFormat) -> Iterator[Path]:
    """Yield the Parquet files of a table as it is now, sorted.

    Raises `TraceError` if they are not known: without the package that reads such tables, where
    rows are deleted in files of their own, or where a file lies outside.
    """
    try:
        list_uris: Callable[[Path], Iterable[str]] = import_module(form.module).list_uris
    except ImportError as error:
        raise TraceError(
            f"{folder}: a table of {form.name} needs the package {error.name}: "
            f"pip install 'policyguard-engine[{form.extra}]'"
        ) from None
    try:
        files = sorted(resolve_uri(folder, uri) for uri in list_uris(folder))
    except TraceError:
        raise
    except Exception as error:  # noqa: BLE001 - whatever a damaged table makes its reader raise
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0][:200]
        raise TraceError(f"{folder}: no table of {form.name} that can be read: {reason}") from None
    yield from files


def resolve_uri(folder: Path, uri: str) -> Path:
    """Return the path of a table's file. Raises `TraceError` for one outside its folder."""
    parts = urlsplit(uri)
    path = Path(unquote(parts.path)) if parts.scheme == "file" else folder / uri
    root = os.path.realpath(folder)
    real = os.path.realpath(path)
    is_elsewhere = "://" in uri and parts.scheme != "file"
    if is_elsewhere or not real.startswith(f"{root.rstrip(os.sep)}{os.sep}"):
        raise TraceError(f"{folder}: the table names a file outside its folder: `{uri:.200}`")
    return folder / os.path.relpath(real, root)
