"""`repeat`: the same call again and again.

What "the same" means is the policy's word (`same`, or a CEL `key`). The two that look at results
count a call only while nothing has changed: the same result each time, and no success of another
state-changing call in between (see `changes`). A result that is still pending and differs from the
one before is never a repetition: somebody waits, and it goes on.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from policyguard.evaluator.attempt import Attempt
from policyguard.evaluator.changes import Changes
from policyguard.evaluator.limits import Limit, Terms
from policyguard.evaluator.wording import times
from policyguard.model.decision import Violation
from policyguard.model.outcome import Outcome


class Entry:
    """One admitted call in a window; `result` is None until it has completed."""

    __slots__ = ("key", "moves", "result", "seq")

    def __init__(self, key: str) -> None:
        self.key = key
        self.result: str | None = None
        self.seq = 0
        self.moves = False


class Window:
    """The last calls under one limit, in order, and by key.

    `pending` is the last pending result of each key that is being waited for.
    """

    __slots__ = ("by_key", "pending", "ring")

    def __init__(self) -> None:
        self.ring: deque[Entry] = deque()
        self.by_key: dict[str, list[Entry]] = {}
        self.pending: dict[str, str] = {}


class Repeat(Limit):
    """Refuses a call that has been admitted `max` times, unchanged, in the last `window` calls."""

    __slots__ = ("by", "key", "same", "size")

    def __init__(
        self,
        terms: Terms,
        *,
        max: int,  # noqa: A002 - the field's name in the language
        window: int,
        same: str,
        key: Callable[[Attempt], str] | None = None,
    ) -> None:
        super().__init__(terms, max)
        self.size = window
        self.same = same
        self.key = key
        self.by = {"call_and_result": _result, "call_and_error": _failure, "error": _failure}.get(
            same if key is None or same == "error" else ""
        )

    def tracker(self) -> Window:
        """An empty window."""
        return Window()

    def subject(self, attempt: Attempt) -> str:
        """What makes the call the same."""
        return attempt.keys.get(self.id, "") if self.key is not None else attempt.fingerprint

    def judge(
        self, tracker: Window, attempt: Attempt, changes: Changes, insisted: int
    ) -> Violation | None:
        """Counts this key's calls in the window; with results, the unchanged run at its end."""
        key = attempt.keys.get(self.id) if self.key is not None else attempt.fingerprint
        if key is None:  # an expression failed: what cannot be told counts against the call
            return Violation(self.id, self.ladder.effect, "repeat", _UNTOLD, _INSTEAD)
        entries = tracker.by_key.get(key)
        count = len(entries) if entries is not None else 0
        if count < self.least and not insisted:
            return None
        if entries is not None:
            if self.by is not None:
                count = _unchanged(entries, changes.since(attempt.fingerprint))
                insisted = insisted if count else 0  # what was refused before a change is void
            elif tracker.pending:
                count -= sum(1 for entry in entries if entry.moves)
        effect = self.answer(count, insisted)
        if effect is None:
            return None
        if not count:
            text = f"this call has been refused {times(insisted)}"
        else:
            text = _TEXT[self.same].format(times=times(count), max=self.max)
        return Violation(self.id, effect, "repeat", text, _INSTEAD, count, self.max)

    def admit(self, tracker: Window, attempt: Attempt) -> Entry:
        """The call takes its place; the oldest leaves the window."""
        key = attempt.fingerprint if self.key is None else self.subject(attempt)
        entry = Entry(key)
        ring, by_key = tracker.ring, tracker.by_key
        ring.append(entry)
        entries = by_key.get(key)
        if entries is None:
            by_key[key] = [entry]
        else:
            entries.append(entry)
        if len(ring) > self.size:
            _forget(tracker, ring.popleft())
        return entry

    def complete(
        self, tracker: Window, mark: Entry, attempt: Attempt, outcome: Outcome, seq: int
    ) -> None:
        """The call's result is known. One that the harness is to blame for has told nothing."""
        if outcome.infra:
            self.release(tracker, mark, attempt)
            return
        # To try again after an outage is no loop; how long it may go on, other limits say.
        if self.by is not None and outcome.blame != "harness":
            mark.result = self.by(outcome)
            mark.seq = seq
        if outcome.state == "pending":
            before = tracker.pending.get(mark.key)
            mark.moves = before is not None and before != outcome.result
            if mark.key in tracker.by_key:  # else it has left the window meanwhile
                tracker.pending[mark.key] = outcome.result
        elif tracker.pending:
            tracker.pending.pop(mark.key, None)

    def release(self, tracker: Window, mark: Entry, attempt: Attempt) -> None:
        """The call leaves the window."""
        if mark in tracker.ring:
            tracker.ring.remove(mark)
            _forget(tracker, mark)


def _result(outcome: Outcome) -> str:
    return outcome.result if outcome.ok else f"!{outcome.result}"  # failed with the same words


def _failure(outcome: Outcome) -> str:
    return outcome.failure  # empty for a success, which is never the same error


def _unchanged(entries: list[Entry], since: int) -> int:
    """How many completed calls at the end of `entries` share one result, nothing changed since."""
    run = 0
    result = None
    for entry in reversed(entries):
        if entry.result is None:
            continue
        if result is None:
            result = entry.result
        if entry.result != result or not result or entry.seq <= since:
            break
        run += 1
    return run


def _forget(tracker: Window, entry: Entry) -> None:
    entries = tracker.by_key[entry.key]
    if len(entries) == 1:
        del tracker.by_key[entry.key]
        tracker.pending.pop(entry.key, None)
    else:
        entries.remove(entry)


_UNTOLD = "whether this call is a repetition cannot be told: its `key` has no value"
_INSTEAD = "change the arguments or the approach, or finish with what you have"
_TEXT = {
    "call": "the same call has been made {times} already (at most {max})",
    "call_and_result": "the same call has been made {times} and its result has not changed",
    "call_and_error": "the same call has failed {times} with the same error",
    "error": "this tool has failed {times} with the same error",
    "target": "this tool has been called on the same target {times} already (at most {max})",
    "key": "a call of the same kind has been made {times} already (at most {max})",
}
