"""Writes the files of a bundle into a new folder."""

from __future__ import annotations

from pathlib import Path

from policyguard.bundle.bundle import Bundle
from policyguard.bundle.errors import BundleError

_FILE_MODE, _FOLDER_MODE = 0o644, 0o755
"""Readable for all: guards of other users load the policy, and must not be able to change it."""


def unpack(bundle: Bundle, folder: Path) -> None:
    """Write the files of a bundle into a folder that does not exist. `BundleError` if that fails.

    Their names are inside it: see `bundle.decode`.
    """
    try:
        folder.mkdir()
        folder.chmod(_FOLDER_MODE)
        for name, text in bundle.files.items():
            path = folder / name
            for parent in [*path.relative_to(folder).parents][-2::-1]:
                inner = folder / parent
                if not inner.exists():
                    inner.mkdir()
                    inner.chmod(_FOLDER_MODE)
            path.write_bytes(text.encode())
            path.chmod(_FILE_MODE)
    except OSError as error:
        raise BundleError(
            f"{folder}: cannot be written: {error.strerror}; see its folder"
        ) from None


def is_unpacked(bundle: Bundle, folder: Path) -> bool:
    """Whether a folder still has the files of a bundle, and no others; no links to them either."""
    try:
        inside = [*folder.rglob("*")]
        if any(path.is_symlink() for path in (folder, *inside)):
            return False
        found = {
            file.relative_to(folder).as_posix(): file.read_bytes()
            for file in inside
            if not file.is_dir()
        }
    except OSError:
        return False
    wanted = {name: text.encode() for name, text in bundle.files.items()}
    return found == wanted
