"""Tables at addresses: their metadata is copied, and read as that of a table in a folder."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from policyguard.engines.remote_files import RemoteFile, copy_files
from policyguard.traces.item import TraceError
from policyguard.traces.tables.table import find_format, list_files

_METADATA_FOLDERS = ("_delta_log", "metadata")
_MAX_BYTES = 1 << 30
"""Of a table's metadata; more is refused rather than copied."""


def replace_tables(files: Sequence[Path]) -> Iterator[Path]:
    """Yield remote files; the folder of a table stands for the files that the table has now.

    Raises `TraceError` as `list_files` does, `OSError` where metadata cannot be fetched.
    """
    roots = {root for file in files if (root := _find_root(file)) is not None}
    outermost = [root for root in roots if roots.isdisjoint(root.parents)]
    yield from (file for file in files if roots.isdisjoint(file.parents))
    for root in sorted(outermost):
        yield from _list_table(root, [file for file in files if root in file.parents])


def _find_root(file: Path) -> Path | None:
    """Return the folder of the table whose metadata a file is."""
    folder = file.parent.name
    is_metadata = folder == "_delta_log" or (
        folder == "metadata" and file.name.endswith(".metadata.json")
    )
    return file.parent.parent if is_metadata else None


def _list_table(root: Path, files: Sequence[Path]) -> Iterator[Path]:
    inner = {file: file.relative_to(root) for file in files}
    metadata = {
        file: name
        for file, name in inner.items()
        if name.parts[0] in _METADATA_FOLDERS and ".." not in name.parts
    }
    with TemporaryDirectory() as copied:
        folder = Path(copied)
        copy_files({str(file): folder / name for file, name in metadata.items()}, _MAX_BYTES)
        form = find_format(folder, [name.parts[0] for name in metadata.values()])
        if form is None:
            yield from files
            return
        try:
            names = [file.relative_to(folder) for file in list_files(folder, form)]
        except TraceError as error:
            raise TraceError(str(error).replace(copied, str(root))) from None
    yield from (RemoteFile(f"{root}/{name}") for name in names)
