"""Values in memory that change in steps, each of which can be undone."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class Step:
    """A lock, and how to undo what has been done since it was taken."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._inside = False
        self.undo: list[Callable[[], object]] = []

    @contextmanager
    def __call__(self) -> Iterator[None]:
        """Take the lock; an exception undoes what was noted in `undo` inside."""
        with self._lock:
            if self._inside:
                yield
                return
            try:
                self._inside = True
                yield
            except BaseException:
                while self.undo:
                    self.undo.pop()()
                raise
            finally:
                self._inside = False
                self.undo.clear()


class Table(Generic[K, V]):
    """Values by key, the least recently used first, at most `cap`.

    `moved` is told of each value that goes and each that comes, also where a step is undone.
    """

    def __init__(
        self, step: Step, cap: int, moved: Callable[[V | None, V | None], None] | None = None
    ) -> None:
        self.step = step
        self._cap = cap
        self._moved = moved
        self.rows: OrderedDict[K, V] = OrderedDict()

    def put(self, key: K, value: V) -> bool:
        """Set a value; whether another had to go for it."""
        with self.step():
            self._set(key, value)
            crowded = len(self.rows) > self._cap
            while len(self.rows) > self._cap:
                self._set(next(iter(self.rows)), None)
            return crowded

    def remove(self, key: K) -> None:
        """Remove a key, if it is there."""
        with self.step():
            if key in self.rows:
                self._set(key, None)

    def _set(self, key: K, value: V | None) -> None:
        self.step.undo.append(partial(self._swap, key, self.rows.get(key)))
        self._swap(key, value)

    def _swap(self, key: K, value: V | None) -> None:
        before = self.rows.pop(key, None)
        if value is not None:
            self.rows[key] = value
        if self._moved is not None:
            self._moved(before, value)
