"""In-memory tables with rollback."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class UndoLog:
    """A lock with the actions that undo what was done under it."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._is_active = False
        self.actions: list[Callable[[], object]] = []

    @contextmanager
    def __call__(self) -> Iterator[None]:
        """Take the lock; an exception runs the `actions` added inside, the last one first."""
        with self._lock:
            if self._is_active:
                yield
                return
            try:
                self._is_active = True
                yield
            except BaseException:
                while self.actions:
                    self.actions.pop()()
                raise
            finally:
                self._is_active = False
                self.actions.clear()


class Table(Generic[K, V]):
    """Values by key, the least recently used first, at most `max_rows` (None: all)."""

    def __init__(self, undo_log: UndoLog, max_rows: int | None) -> None:
        self.undo_log = undo_log
        self._max_rows = max_rows
        self.rows: OrderedDict[K, V] = OrderedDict()

    def put(self, key: K, value: V) -> bool:
        """Set a value; return whether others were evicted for it."""
        with self.undo_log():
            self._set(key, value)
            surplus = 0 if self._max_rows is None else len(self.rows) - self._max_rows
            for _ in range(surplus):
                self._set(next(iter(self.rows)), None)
            return surplus > 0

    def delete(self, key: K) -> None:
        """Delete a key, if it exists."""
        with self.undo_log():
            if key in self.rows:
                self._set(key, None)

    def _set(self, key: K, value: V | None) -> None:
        self.undo_log.actions.append(partial(self._replace, key, self.rows.get(key)))
        self._replace(key, value)

    def _replace(self, key: K, value: V | None) -> None:
        self.rows.pop(key, None)
        if value is not None:
            self.rows[key] = value
