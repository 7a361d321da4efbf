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


class Forking(Protocol):
    """What must be told of a fork."""

    def before_fork(self) -> None:
        """Keep other threads out."""

    def after_fork_in_parent(self) -> None:
        """Let them in again."""

    def after_fork_in_child(self) -> None:
        """Go on without them."""


guards: weakref.WeakSet[threading.RLock] = weakref.WeakSet()
"""The locks of guards."""
databases: weakref.WeakSet[Forking] = weakref.WeakSet()

_PATIENCE = 2.0
"""Seconds. A listener of one guard may wait for another, whose lock is here: the fork goes on."""

_one_at_a_time = threading.Lock()
_held: list[threading.RLock] = []
_quiet: list[Forking] = []


def _before() -> None:
    _one_at_a_time.acquire()
    _held.extend(lock for lock in list(guards) if lock.acquire(timeout=_PATIENCE))
    for database in list(databases):
        database.before_fork()
        _quiet.append(database)


def _after_in_parent() -> None:
    while _quiet:
        _quiet.pop().after_fork_in_parent()
    _release()


def _after_in_child() -> None:
    while _quiet:
        _quiet.pop().after_fork_in_child()
    _release()


def _release() -> None:
    while _held:
        _held.pop().release()
    _one_at_a_time.release()


os.register_at_fork(
    before=_before, after_in_parent=_after_in_parent, after_in_child=_after_in_child
)
