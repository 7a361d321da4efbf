"""Puts the lines of journals into a store of several hosts a moment after they were written.

So a host that pauses, and dies in the pause, leaves no more behind than the last moment's lines.
"""

from __future__ import annotations

import threading
import weakref
from typing import TYPE_CHECKING

from policyguard.guard.host_log import log_failure
from policyguard.store.errors import StoreError

if TYPE_CHECKING:
    from policyguard.guard.guard import Guard

_INTERVAL = 0.2
"""Seconds between two looks at what was written."""
_PAUSE = 2.0
"""Seconds until the next look where the store fails: calls wait for the guard's lock meanwhile."""


class JournalAnchoring:
    """A thread that anchors what a guard has written, from its first session until it is closed."""

    def __init__(self, guard: Guard) -> None:
        self._guard = weakref.ref(guard)
        self._ended = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Begin, unless it has begun: in a forked child the thread is gone."""
        if self._thread is None or not self._thread.is_alive():
            self._thread = threading.Thread(
                target=_run, args=(self._guard, self._ended), name="policyguard-anchor", daemon=True
            )
            self._thread.start()

    def drop(self, session: str) -> None:
        """Let go of a session whose anchor was refused, since another host has opened it."""
        guard = self._guard()
        if guard is not None:
            guard._drop_lost(session)

    def close(self) -> None:
        """End with the current look."""
        self._ended.set()


def _run(held: weakref.ref[Guard], ended: threading.Event) -> None:
    pause = _INTERVAL
    while not ended.wait(pause):
        guard = held()
        if guard is None or guard.closed:
            return
        pause = _INTERVAL if _anchor(guard) else _PAUSE
        del guard


def _anchor(guard: Guard) -> bool:
    """Anchor the guard's journals. Returns whether the store took what there was."""
    try:
        with guard._lock:
            if guard._journal is not None:
                guard._journal.anchor_all()
    except StoreError:  # the next decision says so
        return False
    except Exception:  # noqa: BLE001 - a defect must not end the thread
        log_failure("lines of journals could not be put into the store")
        return False
    return True
