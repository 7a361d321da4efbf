"""Paths of lasting state, private to the user.

The default folder is the user's state folder (XDG Base Directory Specification): outside any
project, so that an agent working on a project does not come across it.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path

from policyguard.engines.lazy_pattern import lazy_pattern
from policyguard.engines.operating_system import O_CLOEXEC
from policyguard.store.errors import StoreError

FOLDER_MODE = 0o700
FILE_MODE = 0o600
JOURNAL_FOLDER = "journal"
"""The name of the folder of journals, beside the store's file."""

_ADDRESS = lazy_pattern(r"([A-Za-z][A-Za-z0-9+.-]+):/")
"""The scheme of an address, also of one that `Path` has made shorter by a slash."""

WRITABLE_BY_OTHERS = stat.S_IWGRP | stat.S_IWOTH


def state_folder() -> Path:
    """Return `$XDG_STATE_HOME/policyguard`, by default `~/.local/state/policyguard`.

    A relative `XDG_STATE_HOME` is ignored, as the specification demands.
    """
    home = Path(os.environ.get("XDG_STATE_HOME", ""))
    return (home if home.is_absolute() else Path.home() / ".local" / "state") / "policyguard"


def default_store_path() -> Path:
    """Return the path of the user's own store."""
    return state_folder() / "store.db"


def journal_folder(store: Path) -> Path:
    """Return the folder of a store's journals."""
    return store.with_name(JOURNAL_FOLDER)


def resolve_store_path(path: str | Path) -> Path:
    """Expand `~` in the path of a store. Raises `StoreError` for a path that cannot be a file's."""
    if str(path) == ":memory:":
        raise StoreError(Path(path), "is not a file path", "omit `store` to keep state in memory")
    return resolve_path(path, "name a file, or pass a store that you have opened")


def is_database_address(store: str | Path) -> bool:
    """Whether a store's name is the address of a PostgreSQL database."""
    return isinstance(store, str) and store.startswith(("postgresql://", "postgres://"))


def resolve_store(store: str | Path | None) -> str | Path:
    """Return the path of a store, by default of the user's own, or the address of a database.

    Raises `StoreError` for a path that cannot be a file's.
    """
    if store is None:
        return default_store_path()
    return store if is_database_address(store) else resolve_store_path(store)


def absolute_store(store: str | Path) -> str:
    """Return the name of a store for other processes: an absolute path, or an address."""
    return str(store if is_database_address(store) else Path(store).resolve())


def find_journal_folder(store: object) -> Path | None:
    """Return the folder of an open store's journals on this host; None if it has none."""
    path = getattr(store, "path", None)
    if isinstance(path, Path):
        return journal_folder(path)
    beside = getattr(store, "journal_folder", None)
    return beside if isinstance(beside, Path) else None


def resolve_path(path: str | Path, remedy: str) -> Path:
    """Expand `~` in a path. Raises `StoreError` with a remedy for what is no path.

    An address such as `postgresql://…` is none.
    """
    named = hide_address(path)
    if named != Path(path):
        raise StoreError(named, "is an address, not a file path", remedy)
    if not named.name or "\0" in str(path):
        raise StoreError(named, "is not a file path", remedy)
    try:
        return named.expanduser()
    except RuntimeError:
        raise StoreError(named, "unknown user in `~name`", "use an absolute path") from None


def hide_address(path: str | Path) -> Path:
    """Return a path for errors: of an address only the scheme, since it may hold a password."""
    address = _ADDRESS.match(str(path))
    return Path(path) if address is None else Path(f"{address[1]}:…")


def ensure_private_folder(folder: Path) -> None:
    """Create the folder (0700) if needed and check that only the user can write to it.

    Raises `StoreError`.
    """
    try:
        folder.mkdir(FOLDER_MODE, parents=True, exist_ok=True)
        status = folder.stat()
    except FileExistsError:
        raise StoreError(folder, "is not a folder", "use another path, or move it away") from None
    except OSError as error:
        raise StoreError(
            folder, f"cannot be created: {error.strerror}", "use a folder that you can write to"
        ) from None
    if status.st_uid != os.geteuid():
        raise StoreError(folder, "belongs to another user", "use a folder of your own")
    if status.st_mode & WRITABLE_BY_OTHERS:
        raise StoreError(folder, "is writable by other users", f"run chmod go-w {folder}")


def ensure_private_file(file: Path) -> None:
    """Create an empty file (0600) if needed. Raises `StoreError`.

    An existing file is not even opened: closing it would drop the locks that another part of this
    process may hold on it (POSIX `fcntl` locks belong to the process).
    """
    ensure_private_folder(file.parent)
    try:
        os.close(os.open(file, os.O_CREAT | os.O_EXCL | O_CLOEXEC | os.O_WRONLY, FILE_MODE))
    except FileExistsError:
        require_regular_file(file)
    except OSError as error:
        raise StoreError(
            file, f"cannot be created: {error.strerror}", "use a path that you can write to"
        ) from None


def is_writable(file: Path) -> bool:
    """Return whether this process may write a file, which need not exist."""
    return os.access(file, os.W_OK, effective_ids=os.access in os.supports_effective_ids)


def require_regular_file(file: Path) -> None:
    """Raise `StoreError` for a folder, pipe or device. A missing file is left to its opener."""
    try:
        mode = file.stat().st_mode
    except OSError:
        return
    if stat.S_ISDIR(mode):
        raise StoreError(file, "is a folder", "name a file")
    if not stat.S_ISREG(mode):
        raise StoreError(file, "is not a regular file", "move it away, or use another path")
