"""Fork safety: hold all locks during a fork, so that the child finds no other thread's lock taken.

A child has only the thread that forked: it could never release another thread's lock, nor finish
its work. Guard locks are taken before database locks, in the order in which calls take them, to
avoid a deadlock.
"""

from __future__ import annotations

import os
import threading
import weakref
from typing import Protocol


class ForkAware(Protocol):
    """An object with fork hooks."""

    def before_fork(self) -> None:
        """Keep other threads out."""

    def after_fork_in_parent(self) -> None:
        """Admit other threads again."""

    def after_fork_in_child(self) -> None:
        """Continue without the other threads."""


guard_locks: weakref.WeakSet[threading.RLock] = weakref.WeakSet()
databases: weakref.WeakSet[ForkAware] = weakref.WeakSet()

_LOCK_TIMEOUT = 2.0
"""Seconds. A listener of one guard may wait for a lock held here; then the fork proceeds."""

_fork_lock = threading.Lock()
_acquired_locks: list[threading.RLock] = []
_paused_databases: list[ForkAware] = []


def _before_fork() -> None:
    _fork_lock.acquire()
    _acquired_locks.extend(
        lock for lock in list(guard_locks) if lock.acquire(timeout=_LOCK_TIMEOUT)
    )
    for database in list(databases):
        database.before_fork()
        _paused_databases.append(database)


def _after_in_parent() -> None:
    while _paused_databases:
        _paused_databases.pop().after_fork_in_parent()
    _release_locks()


def _after_in_child() -> None:
    while _paused_databases:
        _paused_databases.pop().after_fork_in_child()
    _release_locks()


def _release_locks() -> None:
    while _acquired_locks:
        _acquired_locks.pop().release()
    _fork_lock.release()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=_before_fork, after_in_parent=_after_in_parent, after_in_child=_after_in_child
    )
