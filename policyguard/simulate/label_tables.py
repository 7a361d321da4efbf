"""Labels in a table: CSV with a header, or Parquet. Columns: `session`, `success`, `file`."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from policyguard.engines.input_file import open_input
from policyguard.model.errors import PolicyguardError

Rows = Iterator[tuple[int, Mapping[str, Any]]]
"""Rows with their numbers: of lines in CSV, of rows from 1 on in Parquet."""


class LabelError(PolicyguardError):
    """An invalid labels file; the message says where and why."""


def find_reader(path: Path) -> Callable[[Path], Rows] | None:
    """Return what reads a table with the ending of this path; None for another file."""
    return {".csv": _read_csv, ".parquet": _read_parquet}.get(path.suffix.lower())


def _read_csv(path: Path) -> Rows:
    with io.TextIOWrapper(open_input(path), encoding="utf-8-sig", newline="") as file:
        reader = csv.DictReader(file, strict=True)
        try:
            _require_columns(path, reader.fieldnames or ())
            for row in reader:
                yield reader.line_num, {name: value or None for name, value in row.items() if name}
        except (csv.Error, UnicodeDecodeError) as error:
            raise LabelError(f"{path}:{reader.line_num}: no CSV: {error}") from None


def _read_parquet(path: Path) -> Rows:
    try:
        import pyarrow as arrow
        from pyarrow import parquet
    except ImportError:
        raise LabelError(
            f"{path}: Parquet needs the package pyarrow: pip install 'policyguard-engine[lake]'"
        ) from None
    try:
        with open_input(path) as opened, parquet.ParquetFile(opened) as file:
            _require_columns(path, file.schema_arrow.names)
            columns = [name for name in _COLUMNS if name in file.schema_arrow.names]
            number = 0
            for batch in file.iter_batches(columns=columns, use_threads=False):
                for row in batch.to_pylist():
                    number += 1
                    yield number, row
    except (arrow.ArrowException, ValueError) as error:
        reason = (str(error).splitlines() or [type(error).__name__])[0][:200]
        raise LabelError(f"{path}: no Parquet that can be read: {reason}") from None


_COLUMNS = ("session", "success", "file")


def _require_columns(path: Path, names: Any) -> None:
    if "success" not in names or not {"session", "file"}.intersection(names):
        found = ", ".join(map(str, [*names][:12])) or "none"
        raise LabelError(
            f"{path}: needs a column `success`, and one `session` or `file`; it has {found}"
        )
