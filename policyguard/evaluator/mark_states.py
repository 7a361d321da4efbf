"""The state of marks: what is set, in which scope, since when.

State keeps the fingerprints of keys, never the keys: an event with a mark's change rebuilds the
mark without any argument.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from policyguard.evaluator.marks import ANY_KEY, CompiledMark
from policyguard.model.event import MarkChange

if TYPE_CHECKING:
    from policyguard.evaluator.attempt import Attempt
    from policyguard.evaluator.session_state import SessionState

RUN_SCOPES = ("turn", "session")
"""The scopes that end with a run: a session and its sub-agents."""


class MarkState(msgspec.Struct, eq=False):
    """One mark in one scope.

    `keys` are those that are set, the least recently set first, each with its time (ns); the key of
    a bool is empty. Clearings are numbered: `cleared` is the last one of all keys, `cleared_keys`
    hold the last one of single keys since.
    """

    keys: dict[str, int | None] = msgspec.field(default_factory=dict)
    cleared: int = 0
    cleared_keys: dict[str, int] = msgspec.field(default_factory=dict)


class MarkStates:
    """The marks of all sessions. `count` numbers their clearings.

    Marks per turn or session are those of a run: sub-agents share them. `rebuilt` names the session
    that is rebuilt from its journal: this concerns its own marks alone, as those of others are in
    their journals. At most `max_scopes` agents and projects are kept.
    """

    __slots__ = ("_runs", "_shared", "count", "marks", "max_scopes", "rebuilt", "to_keys")

    def __init__(
        self,
        marks: Mapping[str, CompiledMark],
        to_keys: Callable[[Callable[[str], bool], Callable[[], int]], Any],
        max_scopes: int,
    ) -> None:
        self.marks = marks
        self.to_keys = to_keys
        self.max_scopes = max_scopes
        self.count = 0
        self.rebuilt = ""
        self._runs: dict[tuple[str, str], dict[str, MarkState]] = {}
        self._shared: dict[tuple[str, str], dict[str, MarkState]] = {}

    def read(self, session: SessionState, at: int | None) -> dict[str, Any]:
        """Return the variable `mark` at `at` (ns): a map that finds each mark at its first use."""
        return _MarkValues(self, session, at)

    def value(self, session: SessionState, name: str, at: int | None) -> Any:
        """Return a mark as expressions see it. `KeyError` for an unknown one."""
        mark = self.marks[name]
        if not mark.is_keyed:
            return self.is_set(session, name, at)
        keys = MarkKeys(mark, self._find(session, mark), at)
        return self.to_keys(keys.has, keys.count)

    def is_set(self, session: SessionState, name: str, at: int | None) -> bool:
        """Whether a mark is set, or has a key, at `at` (ns)."""
        mark = self.marks[name]
        state = self._find(session, mark)
        if state is None or not state.keys:
            return False
        if mark.within is None:
            return True
        return any(is_alive(set_at, mark.within, at) for set_at in reversed(state.keys.values()))

    def list_set(self, session: SessionState, at: int | None) -> list[str]:
        """Return the marks that are set, or have a key, at `at` (ns), in order of their names."""
        return sorted(name for name in self.marks if self.is_set(session, name, at))

    def admit(self, attempt: Attempt) -> None:
        """Clear what an admitted call clears; note what was cleared before it."""
        session = attempt.session
        if attempt.cleared:
            attempt.cleared_keys = self._find_closing(session, attempt.cleared)
            self.clear(session, attempt.cleared)
        is_own = not self.rebuilt or session.mark_scopes["session"] == self.rebuilt
        # What others have cleared since is not in the journal of a sub-agent.
        attempt.clearings = self.count if is_own else -1

    def complete(self, attempt: Attempt, changes: Iterable[MarkChange]) -> None:
        """Clear again what the call clears, unless doubt sets it; set what its result sets."""
        if attempt.cleared:
            self.clear(attempt.session, self.find_cleared_again(attempt))
        self.set(attempt.session, changes, attempt.completed_at)

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
            self.set(attempt.session, (change,), set_at)

    def _find_closing(
        self, session: SessionState, changes: Iterable[MarkChange]
    ) -> tuple[tuple[MarkChange, int | None], ...]:
        """Return the keys, with their times, that changes clear of marks which doubt sets."""
        found: dict[MarkChange, int | None] = {}
        for change in changes:
            mark = self.marks.get(change.mark)
            state = self._find(session, mark) if mark is not None and mark.sets_on_error else None
            for key, set_at in state.keys.items() if state is not None else ():
                if change.key in ("", key):
                    found[MarkChange(change.mark, key)] = set_at
        return tuple(found.items())

    def is_overtaken(self, attempt: Attempt, change: MarkChange) -> bool:
        """Whether what a call would set was cleared since the call was admitted."""
        state = self._find(attempt.session, self.marks[change.mark])
        return state is not None and (
            max(state.cleared, state.cleared_keys.get(change.key, 0)) > attempt.clearings
        )

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

    def set(self, session: SessionState, changes: Iterable[MarkChange], at: int | None) -> None:
        """Set marks; an unknown one is ignored: the policy may have changed since.

        Of too many keys the least recently set falls out. Where doubt sets the mark, every key is
        set instead, for as long as the one that fell out would have been.
        """
        for change in changes:
            mark = self.marks.get(change.mark)
            if (
                mark is None
                or mark.is_keyed is (change.key == "")
                or self._is_foreign(session, mark)
            ):
                continue
            keys = self._get(session, mark).keys
            _set_key(keys, change.key, at, keep_later=mark.sets_on_error)
            if len(keys) - (ANY_KEY in keys) > mark.keep:
                set_at = keys.pop(next(key for key in keys if key != ANY_KEY))
                if mark.sets_on_error:  # nothing tells any more which key has fallen out
                    _set_key(keys, ANY_KEY, set_at, keep_later=True)

    def clear(self, session: SessionState, changes: Iterable[MarkChange]) -> None:
        """Clear marks, or single keys of them. A wildcard is cleared only with all keys."""
        for change in changes:
            mark = self.marks.get(change.mark)
            if mark is None or self._is_foreign(session, mark):
                continue
            self.count += 1
            state = self._get(session, mark)
            if not change.key:
                state.keys.clear()
                state.cleared_keys.clear()
                state.cleared = self.count
                continue
            state.keys.pop(change.key, None)
            cleared = state.cleared_keys
            cleared.pop(change.key, None)
            cleared[change.key] = self.count
            if len(cleared) > mark.keep:
                state.cleared = max(state.cleared, cleared.pop(next(iter(cleared))))

    def end_turn(self, session: SessionState) -> None:
        """Clear the marks of a turn, for its unfinished calls too. A sub-agent's turn has none."""
        if session.parent is None:
            turn_marks = [name for name, mark in self.marks.items() if mark.scope == "turn"]
            self.clear(session, map(MarkChange, turn_marks))

    def end_session(self, session: SessionState) -> None:
        """Forget the marks of a run."""
        if session.parent is None:
            for scope in RUN_SCOPES:
                self._runs.pop((scope, session.id), None)

    def _is_foreign(self, session: SessionState, mark: CompiledMark) -> bool:
        """Whether the session is rebuilt and the mark not of its run alone."""
        return self.rebuilt != "" and not (
            mark.scope in RUN_SCOPES and session.mark_scopes[mark.scope] == self.rebuilt
        )

    def _find(self, session: SessionState, mark: CompiledMark) -> MarkState | None:
        tables = self._runs if mark.scope in RUN_SCOPES else self._shared
        table = tables.get((mark.scope, session.mark_scopes[mark.scope]))
        return table.get(mark.name) if table is not None else None

    def _get(self, session: SessionState, mark: CompiledMark) -> MarkState:
        """Return a mark's state, new where there is none."""
        place = mark.scope, session.mark_scopes[mark.scope]
        if mark.scope in RUN_SCOPES:
            table = self._runs.setdefault(place, {})
        else:
            table = self._shared[place] = self._shared.pop(place, {})  # the latest
            if len(self._shared) > self.max_scopes:
                del self._shared[next(iter(self._shared))]
        state = table.get(mark.name)
        if state is None:
            state = table[mark.name] = MarkState()
        return state


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


class MarkKeys(msgspec.Struct, frozen=True, eq=False):
    """The keys of a mark at a time (ns), to be asked one by one."""

    mark: CompiledMark
    state: MarkState | None
    at: int | None

    def has(self, key: str) -> bool:
        """Whether a key is set."""
        keys = self.state.keys if self.state is not None else None
        if not keys:
            return False
        return any(
            one in keys and is_alive(keys[one], self.mark.within, self.at)
            for one in (self.mark.digest(key), ANY_KEY)
        )

    def count(self) -> int:
        """Return how many keys are set."""
        if self.state is None:
            return 0
        return sum(is_alive(one, self.mark.within, self.at) for one in self.state.keys.values())


def _set_key(keys: dict[str, int | None], key: str, at: int | None, *, keep_later: bool) -> None:
    """Set a key at `at` (ns), as the latest; with `keep_later` it never expires earlier for it."""
    known = keys.pop(key, at)
    if keep_later:
        at = None if known is None or at is None else max(known, at)
    keys[key] = at


def is_alive(set_at: int | None, within: int | None, at: int | None) -> bool:
    """Whether what was set at `set_at` has not expired at `at`; without times nothing expires."""
    return within is None or set_at is None or at is None or set_at > at - within
