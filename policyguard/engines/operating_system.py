"""What differs between operating systems: the flags of `os.open`, forks, file locks.

Windows has neither forks nor POSIX file locks. There all state is in memory: a store in a file and
journals are refused.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from importlib.util import find_spec

_WINDOWS_FLAGS = getattr(os, "O_NOINHERIT", 0) | getattr(os, "O_BINARY", 0)

O_CLOEXEC: int = getattr(os, "O_CLOEXEC", _WINDOWS_FLAGS)
O_NOFOLLOW: int = getattr(os, "O_NOFOLLOW", 0)
O_NONBLOCK: int = getattr(os, "O_NONBLOCK", 0)
O_DIRECTORY: int = getattr(os, "O_DIRECTORY", 0)

NO_FILE_LOCKS = "needs file locks of POSIX systems, which this one lacks"
"""Why a store in a file, or a journal, is refused."""
NO_FILE_LOCKS_REMEDY = "keep state in memory (without `store`), or use Linux, macOS or WSL"


def has_file_locks() -> bool:
    """Return whether the system has POSIX file locks."""
    return find_spec("fcntl") is not None


def after_fork_in_child(callback: Callable[[], object]) -> None:
    """Call a function in every child of a fork, where there are forks."""
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=callback)
