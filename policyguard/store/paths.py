"""Where state lies, and that nobody else can get at it.

The folder is the user's own state folder (XDG Base Directory Specification): outside any project,
so that an agent that works on a project does not come across it.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path

from policyguard.store.errors import StoreError

FOLDER_MODE = 0o700
FILE_MODE = 0o600
JOURNAL_FOLDER = "journal"
"""The folder of journals, beside the store's file."""

_WRITABLE_BY_OTHERS = stat.S_IWGRP | stat.S_IWOTH


def state_folder() -> Path:
    """`$XDG_STATE_HOME/policyguard`, by default `~/.local/state/policyguard`.

    A relative `XDG_STATE_HOME` is ignored, as the specification demands.
    """
    home = Path(os.environ.get("XDG_STATE_HOME", ""))
    return (home if home.is_absolute() else Path.home() / ".local" / "state") / "policyguard"


def default_store_path() -> Path:
    """The database where nothing else is said."""
    return state_folder() / "store.db"


def journal_folder(store: Path) -> Path:
    """The folder of journals of a store."""
    return store.with_name(JOURNAL_FOLDER)


def resolve_store_path(path: str | Path) -> Path:
    """The file of a store as somebody names it, `~` for the home. Raises `StoreError`."""
    named = Path(path)
    if str(path) == ":memory:":
        raise StoreError(named, "is no file", "leave `store` out: state is in memory then")
    if not named.name or "\0" in str(path):
        raise StoreError(named, "is no name of a file", "name a file")
    try:
        return named.expanduser()
    except RuntimeError:
        raise StoreError(named, "is in nobody's home", "name a place that there is") from None


def ensure_private_folder(folder: Path) -> None:
    """Make the folder (0700) where there is none; see that nobody else can write into it.

    Raises `StoreError`.
    """
    try:
        folder.mkdir(FOLDER_MODE, parents=True, exist_ok=True)
        found = folder.stat()
    except FileExistsError:
        raise StoreError(folder, "is no folder", "name another place, or move it away") from None
    except OSError as error:
        raise StoreError(
            folder, f"cannot be made: {error.strerror}", "name a folder that you may write to"
        ) from None
    if found.st_uid != os.geteuid():
        raise StoreError(folder, "belongs to somebody else", "name a folder of your own")
    if found.st_mode & _WRITABLE_BY_OTHERS:
        raise StoreError(
            folder, "others can write into it", f"take that from them: chmod go-w {folder}"
        )


def ensure_private_file(file: Path) -> None:
    """Make an empty file (0600) where there is none. Raises `StoreError`.

    One that is there is left alone, and not even opened: to close it again would drop the locks
    that another part of this process may hold on it (POSIX `fcntl` locks belong to the process).
    """
    ensure_private_folder(file.parent)
    try:
        os.close(os.open(file, os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_WRONLY, FILE_MODE))
    except FileExistsError:
        require_regular_file(file)
    except OSError as error:
        raise StoreError(
            file, f"cannot be made: {error.strerror}", "name a place that you may write to"
        ) from None


def require_regular_file(file: Path) -> None:
    """See that no pipe, device or folder stands in a file's place. Raises `StoreError`."""
    try:
        mode = file.stat().st_mode
    except OSError:
        return  # whoever opens it says why that cannot be done
    if stat.S_ISDIR(mode):
        raise StoreError(file, "is a folder", "name a file")
    if not stat.S_ISREG(mode):
        raise StoreError(file, "is no regular file", "move it away, or name another place")
