"""Where the marks of a policy are kept, by scope and owner."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol, TypeVar

import msgspec

from policyguard.evaluator.marks.compiled_mark import CompiledMark
from policyguard.evaluator.marks.mark_state import MarkState

Place = tuple[str, str]
"""A scope, and its owner: the session, agent or project."""
UNNAMED = "\x1d"
"""Begins the owner for an isolated session that names none: it shares that with no other."""


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

    def require_current(self) -> None:
        """Raise an error if a call is decided and what others have changed is not known."""

    def find(self, place: Place, mark: CompiledMark) -> MarkState | None:
        """Return a mark's state; None if it was never set or cleared."""

    def update(self, update: MarkUpdate) -> None:
        """Clear and set keys."""


class LocalMarks:
    """Marks in memory, of each at most `max_places` places (None: however many). See `MarkTable`.

    What is known of those that have fallen out stands for all that have no state of their own.
    """

    is_stored = False

    def __init__(self, max_places: int | None = None) -> None:
        self.clearings = 0
        self._max_places = max_places
        self._states: dict[str, dict[Place, MarkState]] = {}
        self._fallen: dict[str, MarkState] = {}

    def require_current(self) -> None:
        """See `MarkTable`. There are no others."""

    def find(self, place: Place, mark: CompiledMark) -> MarkState | None:
        """See `MarkTable`."""
        states = self._states.get(mark.name)
        found = states.get(place) if states is not None else None
        return found or self._fallen.get(mark.name)

    def update(self, update: MarkUpdate) -> None:
        """See `MarkTable`."""
        self.clearings += len(update.cleared)
        name = update.mark.name
        states = self._states.setdefault(name, {})
        state = states.pop(update.place, None)
        if state is None:
            fallen = self._fallen.get(name)
            state = MarkState() if fallen is None else fallen.copy()
        update.apply(state, self.clearings)
        if self._max_places is not None and len(states) >= self._max_places:
            fallen = self._fallen.setdefault(name, MarkState())
            for place in choose_fallen(states, update.mark, 1, fallen, update.at):
                fallen.absorb(update.mark, states.pop(place))
        states[update.place] = state  # the latest

    def forget(self, place: Place) -> None:
        """Forget the marks of a place."""
        for states in self._states.values():
            states.pop(place, None)


K = TypeVar("K")


def choose_fallen(
    states: Mapping[K, MarkState],
    mark: CompiledMark,
    count: int,
    fallen: MarkState | None,
    at: int | None,
) -> list[K]:
    """Return so many places of a mark that are to fall out at `at` (ns).

    They are those of which no more is lost than when they were cleared, since `fallen` says of all
    places without a state what theirs says; then those that changed least recently, which `states`
    has first.
    """
    is_set = fallen is not None and fallen.is_set(mark, at)
    return sorted(states, key=lambda place: states[place].is_set(mark, at) is not is_set)[:count]
