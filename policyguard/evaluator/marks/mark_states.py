"""The marks of all sessions: what is set in which scope, and what calls and hosts change of it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from policyguard.evaluator.marks.compiled_mark import (
    ANY_KEY,
    RUN_SCOPES,
    SHARED_SCOPES,
    CompiledMark,
)
from policyguard.evaluator.marks.mark_state import MarkKeys, MarkState
from policyguard.evaluator.marks.mark_tables import (
    UNNAMED,
    LocalMarks,
    MarkTable,
    MarkUpdate,
    Place,
)
from policyguard.model.event import MarkChange

if TYPE_CHECKING:
    from policyguard.evaluator.attempt import Attempt
    from policyguard.evaluator.session_state import SessionState


class MarkStates:
    """The marks of all sessions.

    Marks per turn or session are those of a run: sub-agents share them. Those per agent or project
    are in the table `shared`, which may be several processes'. `rebuilt` names the session that is
    rebuilt from its journal: this concerns its own marks alone, as those of others are in their
    journals. At most `max_scopes` agents or projects are kept of a mark.
    """

    __slots__ = ("_runs", "marks", "max_scopes", "rebuilt", "shared", "to_keys")

    def __init__(
        self,
        marks: Mapping[str, CompiledMark],
        to_keys: Callable[[Callable[[str], bool], Callable[[], int]], Any],
        max_scopes: int,
    ) -> None:
        self.marks = marks
        self.max_scopes = max_scopes
        self.to_keys = to_keys
        self.rebuilt = ""
        self._runs = LocalMarks()
        self.shared: MarkTable = LocalMarks(max_scopes)

    @property
    def has_shared(self) -> bool:
        """Whether there are marks per agent or project."""
        return any(mark.is_shared for mark in self.marks.values())

    def read(self, session: SessionState, at: int | None) -> dict[str, Any]:
        """Return the variable `mark` at `at` (ns): a map that finds each mark at its first use."""
        return _MarkValues(self, session, at)

    def value(self, session: SessionState, name: str, at: int | None) -> Any:
        """Return a mark as expressions see it. `KeyError` for an unknown one.

        Raises what `MarkTable.require_current` raises.
        """
        mark = self.marks[name]
        if mark.is_shared:
            self.shared.require_current()
        if not mark.is_keyed:
            return self.is_set(session, name, at)
        keys = MarkKeys(mark, self._find(session, mark), at)
        return self.to_keys(keys.has, keys.count)

    def is_set(self, session: SessionState, name: str, at: int | None) -> bool:
        """Whether a mark is set, or has a key, at `at` (ns)."""
        mark = self.marks[name]
        state = self._find(session, mark)
        return state is not None and state.is_set(mark, at)

    def list_set(self, session: SessionState, at: int | None) -> list[str]:
        """Return the marks that are set, or have a key, at `at` (ns), in order of their names."""
        return sorted(name for name in self.marks if self.is_set(session, name, at))

    def admit(self, attempt: Attempt) -> None:
        """Clear what an admitted call clears; note what was cleared before it."""
        session = attempt.session
        taken = attempt.cleared_keys if self.rebuilt else ()  # in the store, as its journal says
        if attempt.cleared:
            attempt.cleared_keys = (*taken, *self._find_closing(session, attempt.cleared))
            self.change(session, attempt.cleared, (), None)
        is_own = not self.rebuilt or session.mark_scopes["session"] == self.rebuilt
        # What others have cleared since is not in the journal of a sub-agent, nor of a session.
        attempt.clearings = self._runs.clearings if is_own else 0
        if not self.rebuilt:
            attempt.shared_clearings = self.shared.clearings
        elif not self.shared.is_stored:
            attempt.shared_clearings = 0

    def number_admission(self, attempt: Attempt) -> int:
        """Return the number of the last clearing before a call, for its journal; 0 if it has none.

        What the call clears itself comes first: at the next numbers, or, where another process
        was faster, later, and then the call sets nothing of it once its session is resumed.
        """
        if not self.shared.is_stored:
            return 0
        return attempt.shared_clearings + self._count_shared(attempt)

    def find_taken(self, attempt: Attempt) -> tuple[MarkChange, ...]:
        """Return what a call has cleared in the store that comes back if it does not run."""
        if not (self.shared.is_stored and attempt.cleared_keys):
            return ()
        return tuple([one for one, _ in attempt.cleared_keys if self._is_shared(one.mark)])

    def repeat_clearings(self, session: SessionState) -> bool:
        """Clear what calls in flight clear in the store and it does not know of; return whether.

        The process died before that was stored, but the calls may run: their admissions are in the
        journal. What doubt sets stays.
        """
        repeated = []
        for attempt in session.in_flight.values():
            before = attempt.shared_clearings - self._count_shared(attempt)
            for one in self.find_cleared_again(attempt):
                if self._is_shared(one.mark):
                    state = self._find(session, self.marks[one.mark])
                    if state is None or not state.is_overtaken(one.key, before):
                        repeated.append(one)
        self.change(session, repeated, (), None)
        return bool(repeated)

    def complete(self, attempt: Attempt, changes: Iterable[MarkChange]) -> None:
        """Clear again what the call clears, unless doubt sets it; set what its result sets."""
        again = self.find_cleared_again(attempt) if attempt.cleared else ()
        self.change(attempt.session, again, changes, attempt.completed_at, attempt)

    def find_cleared_again(self, attempt: Attempt) -> tuple[MarkChange, ...]:
        """Return what the end of a call clears once more."""
        marks = self.marks
        return tuple(
            [
                one
                for one in attempt.cleared
                if one.mark in marks and not marks[one.mark].sets_on_error
            ]
        )

    def release(self, attempt: Attempt) -> None:
        """Set again what a call has cleared that did not run, if doubt sets it."""
        for change, set_at in attempt.cleared_keys:
            self.change(attempt.session, (), (change,), set_at)

    def _find_closing(
        self, session: SessionState, changes: Iterable[MarkChange]
    ) -> tuple[tuple[MarkChange, int | None], ...]:
        """Return the keys, with their times, that changes clear of marks which doubt sets."""
        found: dict[MarkChange, int | None] = {}
        for change in changes:
            mark = self.marks.get(change.mark)
            if mark is None or not mark.sets_on_error or self._is_foreign(session, mark):
                continue
            state = self._find(session, mark)
            for key, set_at in state.keys.items() if state is not None else ():
                if change.key in ("", key):
                    found[MarkChange(change.mark, key)] = set_at
        return tuple(found.items())

    def is_overtaken(self, attempt: Attempt, change: MarkChange) -> bool:
        """Whether what a call would set was cleared since the call was admitted."""
        mark = self.marks[change.mark]
        state = self._find(attempt.session, mark)
        return state is not None and state.is_overtaken(change.key, _clearings(attempt, mark))

    def find_overflowing(
        self, session: SessionState, changes: tuple[MarkChange, ...]
    ) -> list[CompiledMark]:
        """Return the marks of which keys would fall out."""
        by_mark: dict[str, set[str]] = {}
        for change in changes:
            if change.key:
                by_mark.setdefault(change.mark, set()).add(change.key)
        found = []
        for name, keys in by_mark.items():
            mark = self.marks[name]
            state = self._find(session, mark)
            known = state.keys.keys() if state is not None else set[str]()
            if len((known | keys) - {ANY_KEY}) > mark.keep:
                found.append(mark)
        return found

    def change(
        self,
        session: SessionState,
        cleared: Iterable[MarkChange],
        marks: Iterable[MarkChange],
        at: int | None,
        attempt: Attempt | None = None,
    ) -> None:
        """Clear marks, or single keys of them, then set others at `at` (ns).

        Unknown ones are ignored: the policy may have changed since. An `attempt` sets nothing that
        was cleared since its admission, unless doubt sets it.
        """
        by_mark: dict[str, tuple[list[str], list[str]]] = {}
        for one in cleared:
            by_mark.setdefault(one.mark, ([], []))[0].append(one.key)
        for one in marks:
            mark = self.marks.get(one.mark)
            if mark is not None and mark.is_keyed is (one.key != ""):
                by_mark.setdefault(one.mark, ([], []))[1].append(one.key)
        for name, (cleared_keys, keys) in by_mark.items():
            mark = self.marks.get(name)
            if mark is None or self._is_foreign(session, mark):
                continue
            since = None
            if attempt is not None and not mark.sets_on_error:
                since = _clearings(attempt, mark)
            place = _place(session, mark)
            self._table(mark).update(MarkUpdate(place, mark, cleared_keys, keys, at, since))

    def end_turn(self, session: SessionState) -> None:
        """Clear the marks of a turn, for its unfinished calls too. A sub-agent's turn has none."""
        if session.parent is None:
            turn_marks = [name for name, mark in self.marks.items() if mark.scope == "turn"]
            self.change(session, map(MarkChange, turn_marks), (), None)

    def end_session(self, session: SessionState) -> None:
        """Forget the marks of a run."""
        if session.parent is None:
            for scope in RUN_SCOPES:
                self._runs.forget((scope, session.id))
        if isinstance(self.shared, LocalMarks):
            for scope in SHARED_SCOPES:
                if session.mark_scopes[scope].startswith(UNNAMED):
                    self.shared.forget((scope, session.mark_scopes[scope]))

    def _is_foreign(self, session: SessionState, mark: CompiledMark) -> bool:
        """Whether the session is rebuilt and the mark not of its run alone."""
        return self.rebuilt != "" and not (
            mark.scope in RUN_SCOPES and session.mark_scopes[mark.scope] == self.rebuilt
        )

    def _count_shared(self, attempt: Attempt) -> int:
        """Return how many marks of agents and projects a call clears."""
        return len({one.mark for one in attempt.cleared if self._is_shared(one.mark)})

    def _is_shared(self, name: str) -> bool:
        return name in self.marks and self.marks[name].is_shared

    def _find(self, session: SessionState, mark: CompiledMark) -> MarkState | None:
        return self._table(mark).find(_place(session, mark), mark)

    def _table(self, mark: CompiledMark) -> MarkTable:
        return self.shared if mark.is_shared else self._runs


def _place(session: SessionState, mark: CompiledMark) -> Place:
    return mark.scope, session.mark_scopes[mark.scope]


def _clearings(attempt: Attempt, mark: CompiledMark) -> int:
    """Return how often marks had been cleared when a call was admitted."""
    return attempt.shared_clearings if mark.is_shared else attempt.clearings


class _MarkValues(dict[str, Any]):
    """The values of marks in a session, each computed once."""

    __slots__ = ("_at", "_session", "_states")

    def __init__(self, states: MarkStates, session: SessionState, at: int | None) -> None:
        super().__init__()
        self._states, self._session, self._at = states, session, at

    def __missing__(self, name: str) -> Any:
        value = self[name] = self._states.value(self._session, name, self._at)
        return value

    def __contains__(self, name: object) -> bool:
        return name in self._states.marks
