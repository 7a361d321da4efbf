"""The files of an Iceberg table in a folder, as its latest metadata says.

Which metadata is the table's own is known to its catalog. In a folder it is the one with the
highest number, as tables in folders are kept.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from pyiceberg.manifest import DataFileContent, FileFormat, ManifestContent
from pyiceberg.table import StaticTable

from policyguard.traces.item import TraceError
from policyguard.traces.tables.table import resolve_uri

_NUMBER = re.compile(r"v?(\d+)(?:-.+)?\.metadata\.json")


def list_uris(folder: Path) -> Iterator[str]:
    """Yield the addresses of the table's data files.

    Raises `TraceError` where rows are deleted by files of their own, and for other formats.
    """
    table = StaticTable.from_metadata(str(_find_metadata(folder)))
    snapshot = table.current_snapshot()
    if snapshot is None:
        return
    resolve_uri(folder, snapshot.manifest_list)  # before it is opened
    for manifest in snapshot.manifests(table.io):
        resolve_uri(folder, manifest.manifest_path)
        if manifest.content is ManifestContent.DELETES:
            raise TraceError(
                f"{folder}: an Iceberg table with deleted rows in files of their own, which are "
                "not read: rewrite its data files"
            )
        for entry in manifest.fetch_manifest_entry(table.io, discard_deleted=True):
            file = entry.data_file
            if (
                file.content is not DataFileContent.DATA
                or file.file_format is not FileFormat.PARQUET
            ):
                raise TraceError(f"{folder}: an Iceberg table with files that are not Parquet")
            yield file.file_path


def _find_metadata(folder: Path) -> Path:
    """Return the metadata with the highest number. Raises `TraceError` if several have it."""
    numbered: dict[int, list[Path]] = {}
    for path in (folder / "metadata").iterdir():
        match = _NUMBER.fullmatch(path.name)
        if match is not None:
            numbered.setdefault(int(match[1]), []).append(path)
    latest = numbered[max(numbered)] if numbered else []
    if len(latest) != 1:
        raise TraceError(
            f"{folder}: cannot tell the table's latest metadata: name the files that its catalog "
            "gives"
        )
    return latest[0]
