"""The files of an Iceberg table in a folder, as its latest metadata says.

Which metadata is the table's own is known to its catalog. In a folder it is the one with the
highest number, as tables in folders are kept.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from pyiceberg.io.pyarrow import PyArrowFile, PyArrowFileIO
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
    files = _TableFiles(folder, table.metadata.location)
    for manifest in snapshot.manifests(files):
        if manifest.content is ManifestContent.DELETES:
            raise TraceError(
                f"{folder}: an Iceberg table with deleted rows in files of their own, which are "
                "not read: rewrite its data files"
            )
        for entry in manifest.fetch_manifest_entry(files, discard_deleted=True):
            file = entry.data_file
            if (
                file.content is not DataFileContent.DATA
                or file.file_format is not FileFormat.PARQUET
            ):
                raise TraceError(f"{folder}: an Iceberg table with files that are not Parquet")
            yield str(files.find(file.file_path))


class _TableFiles(PyArrowFileIO):
    """The files of a table where its folder is now: metadata names them by where it was made.

    No file outside the folder is opened.
    """

    def __init__(self, folder: Path, location: str) -> None:
        super().__init__()
        self._folder = folder
        self._prefix = location.rstrip("/") + "/"

    def find(self, address: str) -> Path:
        """Return the path of a file. Raises `TraceError` for one outside the folder."""
        return resolve_uri(self._folder, address.removeprefix(self._prefix))

    def new_input(self, location: str) -> PyArrowFile:
        """Open a file for reading. Raises `TraceError` for one outside the folder."""
        return super().new_input(str(self.find(location)))


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
