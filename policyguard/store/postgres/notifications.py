"""Wakes guards when another has changed the constraints or grants.

A notification may be lost with its connection: it only makes a guard look sooner than it would.
"""

from __future__ import annotations

import socket
import threading
import weakref
from collections.abc import Callable

from policyguard.store.errors import StoreError
from policyguard.store.postgres.database import Database

CHANNEL = "policyguard"
_PAUSE = 2.0
"""Seconds between two attempts to listen."""


class Notifications:
    """Listens on a connection of its own, from the first listener on, until it is closed."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._listeners: list[weakref.WeakMethod[Callable[[], None]]] = []
        self._ended = threading.Event()
        self._end: socket.socket | None = None
        self._thread: threading.Thread | None = None

    def listen(self, listener: Callable[[], None]) -> None:
        """Call a method, which is held weakly, in another thread when something has changed."""
        self._listeners.append(weakref.WeakMethod(listener))
        if self._thread is None:
            self._ended.clear()
            self._end, ended = socket.socketpair()
            self._thread = threading.Thread(
                target=self._run, args=(ended,), name="policyguard-listen", daemon=True
            )
            self._thread.start()

    def send(self) -> None:
        """Wake the others once this transaction is committed."""
        self._database.execute("SELECT pg_notify(%s, '')", (CHANNEL,))

    def close(self) -> None:
        """Listen no longer."""
        self._ended.set()
        thread, self._thread = self._thread, None
        end, self._end = self._end, None
        if thread is None or end is None:
            return
        if thread.is_alive():  # it is not after a fork, where the parent has the other end
            end.shutdown(socket.SHUT_RDWR)
            thread.join(1.0)
        end.close()

    def _run(self, ended: socket.socket) -> None:
        with ended:
            while not self._ended.is_set():
                try:
                    for _ in self._database.listen(CHANNEL, ended):
                        self._wake()
                except StoreError:
                    self._ended.wait(_PAUSE)

    def _wake(self) -> None:
        for held in [*self._listeners]:
            listener = held()
            if listener is None:
                self._listeners.remove(held)
            else:
                listener()
