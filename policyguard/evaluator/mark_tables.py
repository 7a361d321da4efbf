"""Where the marks of a policy are kept, by scope and owner."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import msgspec

from policyguard.evaluator.mark_state import MarkState
from policyguard.evaluator.marks import CompiledMark

Place = tuple[str, str]
"""A scope, and its owner: the session, agent or project."""


class MarkUpdate(msgspec.Struct, frozen=True, eq=False):
    """Keys of a mark to clear, then keys to set at `at` (ns), as `MarkState.update` does."""

    place: Place
    mark: CompiledMark
    cleared: Sequence[str]
    keys: Sequence[str]
    at: int | None
    since: int | None

    def apply(self, state: MarkState, number: int) -> None:
        """Apply it as clearing `number`."""
        state.update(
            self.mark,
            number,
            cleared=self.cleared,
            keys=self.keys,
            at=self.at,
            since=self.since,
        )


class MarkTable(Protocol):
    """Marks by place. Under the guard's lock."""

    @property
    def clearings(self) -> int:
        """The number of the last clearing."""

    @property
    def is_stored(self) -> bool:
        """Whether clearings have the same numbers in all processes."""

    def find(self, place: Place, mark: CompiledMark) -> MarkState | None:
        """Return a mark's state; None if it was never set or cleared."""

    def update(self, update: MarkUpdate) -> None:
        """Clear and set keys."""


class LocalMarks:
    """Marks in memory, of at most `max_places` places (None: however many). See `MarkTable`."""

    is_stored = False

    def __init__(self, max_places: int | None = None) -> None:
        self.clearings = 0
        self._max_places = max_places
        self._tables: dict[Place, dict[str, MarkState]] = {}

    def find(self, place: Place, mark: CompiledMark) -> MarkState | None:
        """See `MarkTable`."""
        table = self._tables.get(place)
        return table.get(mark.name) if table is not None else None

    def update(self, update: MarkUpdate) -> None:
        """See `MarkTable`."""
        self.clearings += len(update.cleared)
        update.apply(self._get(update.place, update.mark), self.clearings)

    def forget(self, place: Place) -> None:
        """Forget the marks of a place."""
        self._tables.pop(place, None)

    def _get(self, place: Place, mark: CompiledMark) -> MarkState:
        """Return a mark's state, new where there is none."""
        table = self._tables[place] = self._tables.pop(place, {})  # the latest
        if self._max_places is not None and len(self._tables) > self._max_places:
            del self._tables[next(iter(self._tables))]
        state = table.get(mark.name)
        if state is None:
            state = table[mark.name] = MarkState()
        return state
