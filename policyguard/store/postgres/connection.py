"""Connections that never wait long: a network that drops packets refuses nothing."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Generator
from typing import Any

import psycopg

Row = tuple[Any, ...]

_SILENCE = 6.0
"""Seconds without a byte after which a server is away: it ends statements itself after five."""
_PATIENCE = 1.0
"""Seconds that a caller waits for a new connection, which is made in another thread."""


class Connection(psycopg.Connection[Row]):
    """A connection that is closed, and raises `OperationalError`, when the server is silent."""

    def wait(self, gen: Any, *arguments: Any, **options: Any) -> Any:
        """Wait as psycopg does, but not for ever."""
        return super().wait(self._bound(gen), *arguments, **options)

    def _bound(self, steps: Generator[Any, Any, Any]) -> Generator[Any, Any, Any]:
        deadline = time.monotonic() + _SILENCE
        try:
            wanted = next(steps)
            while True:
                ready = yield wanted
                if ready:
                    deadline = time.monotonic() + _SILENCE
                elif time.monotonic() > deadline:
                    self.close()
                    raise psycopg.OperationalError("the server does not answer")
                wanted = steps.send(ready)
        except StopIteration as end:
            return end.value


class Attempt:
    """An attempt to connect, which goes on in another thread when its caller no longer waits."""

    def __init__(self, connect: Callable[[], Connection]) -> None:
        self._connect = connect
        self._lock = threading.Lock()
        self._is_abandoned = False
        self._connection: Connection | None = None
        self._error: psycopg.Error | None = None
        self._ended = threading.Event()
        threading.Thread(target=self._run, name="policyguard-connect", daemon=True).start()
        self._ended.wait(_PATIENCE)

    @property
    def is_pending(self) -> bool:
        """Whether neither a connection nor an error is there yet."""
        return not self._ended.is_set()

    def take(self) -> Connection:
        """Return the connection, once nothing is pending. Raises `psycopg.Error`."""
        if self._connection is None:
            raise self._error or psycopg.OperationalError("no connection")
        return self._connection

    def abandon(self) -> None:
        """Close the connection, now or when it is there."""
        with self._lock:
            self._is_abandoned = True
            if self._connection is not None:
                self._connection.close()

    def _run(self) -> None:
        try:
            connection = self._connect()
            with self._lock:
                self._connection = connection
                if self._is_abandoned:
                    connection.close()
        except psycopg.Error as error:
            self._error = error
        finally:
            self._ended.set()
