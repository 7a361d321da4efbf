"""Forks: no other thread is inside while the process is forked, so that a child can go on.

A child has one thread, the one that forked: a lock that another held would never be released, and
what it had half done would stay so. So locks are taken before a fork. A call takes its guard's
first, then its database's; here it is the same, lest two threads wait for each other.
"""

from __future__ import annotations

import os
import threading
import weakref
from typing import Protocol


class ForkAware(Protocol):
    """What must be told of a fork."""

    def before_fork(self) -> None:
        """Keep other threads out."""

    def after_fork_in_parent(self) -> None:
        """Let them in again."""

    def after_fork_in_child(self) -> None:
        """Go on without them."""


guard_locks: weakref.WeakSet[threading.RLock] = weakref.WeakSet()
"""The locks of guards."""
databases: weakref.WeakSet[ForkAware] = weakref.WeakSet()

_LOCK_TIMEOUT = 2.0
"""Seconds. A listener of one guard may wait for another, whose lock is here: the fork goes on."""

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


os.register_at_fork(
    before=_before_fork, after_in_parent=_after_in_parent, after_in_child=_after_in_child
)
