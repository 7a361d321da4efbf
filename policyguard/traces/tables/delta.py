"""The files of a Delta table."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from deltalake import DeltaTable

from policyguard.traces.item import TraceError


def list_uris(folder: Path) -> Iterable[str]:
    """Return the paths of the table's files. Raises `TraceError` for features that change rows."""
    table = DeltaTable(str(folder))
    if "deletionVectors" in (table.protocol().reader_features or ()):
        raise TraceError(
            f"{folder}: a Delta table with deletion vectors, which are not read: "
            "rewrite it with `REORG TABLE … APPLY (PURGE)`, and drop the feature"
        )
    mapping = table.metadata().configuration.get("delta.columnMapping.mode", "none")
    if mapping != "none":
        raise TraceError(
            f"{folder}: a Delta table whose columns have other names in its files: "
            "name the files, and their columns with --columns"
        )
    return table.file_uris()
