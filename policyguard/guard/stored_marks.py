"""Keeps the marks of agents and projects in a store, for all processes that use it.

Memory has a copy, which is brought up to date at each check: who may merge must not depend on the
process that asks. A change is made to what the store has then, in one transaction, so that a call
sets no mark that was cleared elsewhere since its admission.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING

from msgspec.structs import replace

from policyguard.evaluator.marks.compiled_mark import ANY_KEY, CompiledMark, MarkEvents
from policyguard.evaluator.marks.mark_state import MarkState
from policyguard.evaluator.marks.mark_tables import MarkUpdate, Place, choose_fallen
from policyguard.guard.clock import RESOLUTION, SteadyClock
from policyguard.guard.host_log import warn
from policyguard.model.event import MarkChange
from policyguard.store.errors import StoreError
from policyguard.store.mark_records import FALLEN, decode_mark, mark_id, to_record
from policyguard.store.protocol import RevocableRecord, Store

if TYPE_CHECKING:
    from policyguard.evaluator.attempt import Attempt

_DROPPED_SHARE = 16
"""One of so many records of a mark is dropped beside those that are too many."""


class StoredMarks:
    """See `policyguard.evaluator.marks.mark_tables.MarkTable`. Clearings are versions of the store.

    An update counts here at once, and for others once it is saved: after the step that it belongs
    to, which may be undone with a transaction of its own. At most `max_places` wait for that, and
    of each mark so many records are kept, as `LocalMarks` keeps places. `taken` are the keys, with
    their times (ns), that the latest save cleared of marks which doubt sets: others may have set
    them since the call was decided. Of the updates that wait, the first `_waiting` did so before
    the latest call was decided.
    """

    is_stored = True

    def __init__(
        self,
        store: Store,
        marks: Mapping[str, CompiledMark],
        steady_clock: SteadyClock,
        key: bytes,
        max_places: int,
    ) -> None:
        self._marks = marks
        self._store = store
        self._records = store.marks
        self._steady_clock = steady_clock
        self._key = key
        self._max_places = max_places
        self._states: dict[str, MarkState] = {}
        self._places: dict[tuple[str, str], dict[str, None]] = {}
        self._forged: dict[str, int] = {}
        self._unsaved: list[tuple[MarkUpdate, bool]] = []
        self._waiting = 0
        self._is_outdated = False
        self.missed: StoreError | None = None
        self.taken: dict[MarkChange, int | None] = {}
        self.clearings = 0
        self.poll()

    def poll(self) -> None:
        """Write what waits, and load what others have changed. Raises `StoreError`."""
        self.save()
        if self._records.version() == self.clearings and not self._is_outdated:
            return
        changes = self._records.changes(0 if self._is_outdated else self.clearings)
        forged = self._forged
        if changes.is_complete or self._is_outdated:
            self._states.clear()
            self._places.clear()
            self._forged = {}
        for record in sorted(changes.records, key=lambda record: record.updated_at):
            self._load(record, forged.get(record.id), changes.version)
        self.clearings = changes.version
        self._is_outdated = False

    def poll_for(self, events: MarkEvents | None) -> None:
        """Do as `poll` does for a call that may be these events.

        If it is none of such a mark, the `StoreError` is kept as `missed`, for when it reads one.
        """
        self.missed = None
        self._waiting = len(self._unsaved)
        try:
            self.poll()
        except StoreError as error:
            if events is not None and events.are_shared:
                raise
            self.missed = error

    def require_current(self) -> None:
        """See `MarkTable`. Raises what `poll_for` has kept."""
        if self.missed is not None:
            raise self.missed

    def save_cleared(self, attempt: Attempt) -> None:
        """Write what an admission has cleared: others may count on it else. Raises `StoreError`."""
        if not any(mark.is_shared for mark in self._find_marks(attempt.cleared)):
            return
        attempt.shared_clearings = max(attempt.shared_clearings, self.save())
        if self.taken:  # comes back if the call does not run
            attempt.cleared_keys = (*{**dict(attempt.cleared_keys), **self.taken}.items(),)

    def withdraw(self) -> None:
        """Leave out what the latest call would have cleared: it does not run."""
        del self._unsaved[self._waiting :]
        self._is_outdated = True

    def save(self) -> int:
        """Write what waits, in order; return its last number, 0 if none. Raises `StoreError`."""
        number = 0
        self.taken.clear()
        while self._unsaved:
            update, is_known = self._unsaved[0]
            if not is_known or self._records.version() != self.clearings:
                number = self._write(update)
            self._remove_first()
        return number

    def try_save(self) -> StoreError | None:
        """Write what waits; return why that failed. The next `poll` tries again, and raises."""
        try:
            self.save()
        except StoreError as error:
            return error
        return None

    def find(self, place: Place, mark: CompiledMark) -> MarkState | None:
        """See `MarkTable`. A mark that another program wrote is as its doubt says."""
        for id_ in (mark_id(place, mark.name), mark_id((place[0], FALLEN), mark.name)):
            if id_ in self._forged:
                return _doubtful_state(mark, self._forged[id_])
            state = self._states.get(id_)
            if state is not None:
                if not _fits(state, mark):
                    state = self._states[id_] = _fit(state, mark)
                return state
        return None

    def update(self, update: MarkUpdate) -> None:
        """See `MarkTable`."""
        if len(self._unsaved) == self._max_places:
            lost = self._unsaved[0][0].mark.name
            warn(
                f"a change of mark `{lost}` is lost to other processes: the store is away, and "
                f"{self._max_places} changes wait for it (`bounds.budget_keys`)"
            )
            self._remove_first()
        id_ = mark_id(update.place, update.mark.name)
        found = self.find(update.place, update.mark)
        state = MarkState() if found is None else found.copy()
        self._unsaved.append((update, _is_known(state, update)))
        _apply(update, state, self.clearings + 1)
        self._keep(id_, (update.place[0], update.mark.name), state)

    def _remove_first(self) -> None:
        del self._unsaved[0]
        self._waiting = max(0, self._waiting - 1)

    def _find_marks(self, changes: Iterable[MarkChange]) -> Iterator[CompiledMark]:
        return (self._marks[one.mark] for one in changes if one.mark in self._marks)

    def _write(self, update: MarkUpdate) -> int:
        version, state = 0, MarkState()
        taken: dict[MarkChange, int | None] = {}

        def make(record: RevocableRecord | None, number: int) -> RevocableRecord:
            nonlocal version, state, taken
            if record is None:
                record = self._records.get(fallen_id)
            version, state = number, self._decode(record, update.mark, number)
            taken = _find_taken(update, state)
            _apply(update, state, number)
            return self._encode(update.place, update.mark, state)

        id_ = mark_id(update.place, update.mark.name)
        group = update.place[0], update.mark.name
        fallen_id = mark_id((group[0], FALLEN), update.mark.name)
        with self._store.transaction():
            self._records.update(id_, make)
            dropped = self._drop_surplus(update, id_, fallen_id)
        self.taken |= taken
        self._keep(id_, group, state)
        if dropped:
            self._is_outdated = True
        elif version == self.clearings + 1:  # else others' changes are still to be loaded
            self.clearings = version
        return version

    def _drop_surplus(self, update: MarkUpdate, written: str, fallen_id: str) -> bool:
        """Drop records of the mark if it has too many; return whether it had."""
        scope, mark = update.place[0], update.mark
        places = self._places.get((scope, mark.name), {})
        states = {id_: self._states[id_] for id_ in places if id_ not in (written, fallen_id)}
        surplus = len(states) + 1 - self._max_places
        if surplus <= 0:
            return False
        number = self._records.version()
        fallen = self._decode(self._records.get(fallen_id), mark, number)
        # Several at once: whenever one is dropped, others load all.
        count = surplus + self._max_places // _DROPPED_SHARE
        for id_ in choose_fallen(states, mark, count, fallen, update.at):
            fallen.absorb(mark, self._decode(self._records.get(id_), mark, number))
            self._records.delete(id_)
        self._records.update(fallen_id, lambda *_: self._encode((scope, FALLEN), mark, fallen))
        lost = "counts as set" if fallen.is_set(mark, update.at) else "is not set any more"
        warn(
            f"mark `{mark.name}` is kept for {self._max_places} {scope}s (`bounds.budget_keys`): "
            f"for those of which it changed least recently it {lost}"
        )
        return True

    def _encode(self, place: Place, mark: CompiledMark, state: MarkState) -> RevocableRecord:
        return to_record(place, mark.name, state, self._steady_clock.read()[0], self._key)

    def _keep(self, id_: str, group: tuple[str, str], state: MarkState) -> None:
        """Keep a state, as the latest of its scope and mark."""
        self._forged.pop(id_, None)
        self._states[id_] = state
        places = self._places.setdefault(group, {})
        places.pop(id_, None)
        places[id_] = None

    def _load(self, record: RevocableRecord, forged_at: int | None, version: int) -> None:
        """Load a record that was found to be forged at a version before, or is read anew."""
        state = decode_mark(record, self._key)
        if state is None:
            self._forged[record.id] = version if forged_at is None else forged_at
            if forged_at is None:
                warn(
                    f"mark `{record.key:.80}` of the store does not count: it was changed, or set "
                    "under another key"
                )
            return
        self._keep(record.id, (record.scope.split("\x1f", 1)[0], record.key), state)
        mark = self._marks.get(record.key)
        if mark is None or mark.within is None or mark.sets_on_error:
            return  # perhaps this clock is behind, and a mark that closes a way must not end early
        latest = self._steady_clock.read()[0] + RESOLUTION
        if any(at is not None and at > latest for at in state.keys.values()):
            self._records.update(record.id, partial(self._redate, record))

    def _redate(
        self, record: RevocableRecord, current: RevocableRecord | None, _: int
    ) -> RevocableRecord:
        """Let what was set under a clock ahead expire as if it were set now."""
        current = current or record
        state = decode_mark(current, self._key)
        if state is None:
            return current
        now = self._steady_clock.read()[0]
        state.keys = {key: at if at is None else min(at, now) for key, at in state.keys.items()}
        self._states[record.id] = state
        scope, owner = current.scope.split("\x1f", 1)
        return to_record((scope, owner), current.key, state, now, self._key)

    def _decode(self, record: RevocableRecord | None, mark: CompiledMark, number: int) -> MarkState:
        if record is None:
            return MarkState()
        state = decode_mark(record, self._key)
        if state is None:
            state = _doubtful_state(mark, self._forged.get(record.id, number - 1))
        return state if _fits(state, mark) else _fit(state, mark)


def _apply(update: MarkUpdate, state: MarkState, number: int) -> None:
    """Apply an update; of a call that another store has admitted, nothing says what came later."""
    if update.since is not None and update.since >= number:
        update = replace(update, since=0)
    update.apply(state, number)


def _find_taken(update: MarkUpdate, state: MarkState) -> dict[MarkChange, int | None]:
    """Return what an update clears of a mark that doubt sets."""
    if not update.mark.sets_on_error:
        return {}
    return {
        MarkChange(update.mark.name, key): at
        for key, at in state.keys.items()
        if "" in update.cleared or key in update.cleared
    }


def _is_known(state: MarkState, update: MarkUpdate) -> bool:
    """Whether an update sets what was set last and does not expire: nothing would change."""
    latest = next(reversed(state.keys), None)
    return not update.cleared and update.mark.within is None and [*update.keys] == [latest]


def _doubtful_state(mark: CompiledMark, cleared: int) -> MarkState:
    """Return the state of a mark of which nothing is known: it may have been cleared till then."""
    if not mark.sets_on_error:
        return MarkState(cleared=cleared)
    return MarkState({ANY_KEY if mark.is_keyed else "": None}, cleared)


def _fits(state: MarkState, mark: CompiledMark) -> bool:
    """Whether only keys are set that the mark can have, and not too many."""
    if not mark.is_keyed:
        return not state.keys or [*state.keys] == [""]
    return "" not in state.keys and (mark.sets_on_error or len(state.keys) <= mark.keep)


def _fit(state: MarkState, mark: CompiledMark) -> MarkState:
    """Leave out what was set when the mark had keys and has none now, or had none, or kept more.

    Where doubt sets the mark, it is set instead, with every key.
    """
    kept = {key: at for key, at in state.keys.items() if (key != "") is mark.is_keyed}
    if mark.sets_on_error:
        times = [at for key, at in state.keys.items() if key not in kept]
        latest = None if None in times else max(at for at in times if at is not None)
        kept[ANY_KEY if mark.is_keyed else ""] = latest
    else:
        kept = dict([*kept.items()][-mark.keep :])
    return MarkState(kept, state.cleared, state.cleared_keys)
