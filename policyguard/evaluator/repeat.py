"""`repeat`: the same call again and again.

What "the same" means is the policy's word (`same`, or a CEL `key`). Those that look at results or
errors count a call only while nothing has changed: the same result each time, and no success of
another state-changing call in between (see `changes`). A result that is still pending and differs
from the one before is never a repetition: somebody waits, and it goes on.
"""

from __future__ import annotations

from collections.abc import Callable, Container

from policyguard.evaluator.attempt import Attempt, Call
from policyguard.evaluator.changes import Changes
from policyguard.evaluator.limits import Limit, Terms
from policyguard.evaluator.wording import NEVER, times
from policyguard.model.decision import Violation
from policyguard.model.outcome import Outcome


class Window:
    """The last calls under one limit, in order, and by key: one call, or a list of several.

    `pending` is the last pending result of each key that is being waited for.
    """

    __slots__ = ("by_key", "pending", "ring")

    def __init__(self) -> None:
        self.ring: list[Call] = []
        self.by_key: dict[str, Call | list[Call]] = {}
        self.pending: dict[str, str] = {}


class Repeat(Limit):
    """Refuses a call that has been admitted `max` times, unchanged, in the last `window` calls."""

    __slots__ = ("by", "key", "same", "size")

    counts = True

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
        self.hears = False  # a success only ends what is pending
        self.size = window
        self.same = same
        self.key = key
        self.by = {"call_and_result": _result, "call_and_error": _failure, "error": _failure}.get(
            same if key is None or same == "error" else ""
        )

    def tracker(self) -> Window:
        """An empty window."""
        return Window()

    def seen(self, tracker: Window) -> Container[str] | None:
        """The calls in the window."""
        return tracker.by_key if self.key is None and self.least else None

    def stirs(self, tracker: Window) -> bool:
        """Whether something is being waited for."""
        return bool(tracker.pending)

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
        calls = _calls(tracker, key)
        count = len(calls)
        if count < self.least and not insisted:
            return None
        if calls:
            if self.by is not None:
                count = _unchanged(calls, self.by, changes.since(attempt.fingerprint))
                insisted = insisted if count else 0  # what was refused before a change is void
            elif tracker.pending:
                count -= sum(1 for call in calls if call.moves)
        effect = self.answer(count, insisted)
        if effect is None:
            return None
        if count:
            text = _TEXT[self.same].format(times=times(count), max=self.max)
        elif insisted:
            text = f"this call has been refused {times(insisted)}"
        else:
            text = NEVER
        return Violation(self.id, effect, "repeat", text, _INSTEAD, count, self.max)

    def admit(self, tracker: Window, attempt: Attempt) -> None:
        """The call takes its place; the oldest leaves the window."""
        call = attempt.call
        if self.key is not None:
            call.key = self.subject(attempt)
        key, by_key, ring = call.key, tracker.by_key, tracker.ring
        if key in by_key:
            _add(by_key, key, call)
        else:
            by_key[key] = call
        ring.append(call)
        if len(ring) > self.size:
            oldest = ring.pop(0)
            if by_key[oldest.key] is oldest and not tracker.pending:
                del by_key[oldest.key]
            else:
                _forget(tracker, oldest)

    def complete(self, tracker: Window, attempt: Attempt, outcome: Outcome) -> None:
        """The call's result is known. One that the harness is to blame for has told nothing."""
        call = attempt.call
        if outcome.infra:
            self.release(tracker, attempt)
        elif outcome.state == "pending":
            before = tracker.pending.get(call.key)
            call.moves = before is not None and before != outcome.result
            if call.key in tracker.by_key:  # else it has left the window meanwhile
                tracker.pending[call.key] = outcome.result
        elif tracker.pending:
            tracker.pending.pop(call.key, None)

    def release(self, tracker: Window, attempt: Attempt) -> None:
        """The call leaves the window."""
        if attempt.call in tracker.ring:
            tracker.ring.remove(attempt.call)
            _forget(tracker, attempt.call)


def _result(call: Call) -> str | None:
    return call.result


def _failure(call: Call) -> str:
    return call.failure  # empty for a success, which is never the same error


def _unchanged(calls: list[Call], by: Callable[[Call], str | None], since: int) -> int:
    """How many completed calls at the end of `calls` share one result, nothing changed since.

    To try again after an outage is no loop: how long it may go on, other limits say.
    """
    run = 0
    result = None
    for call in reversed(calls):
        if call.result is None or call.excused:
            continue
        told = by(call)
        if result is None:
            result = told
        if told != result or not result or call.seq <= since:
            break
        run += 1
    return run


def _calls(tracker: Window, key: str) -> list[Call]:
    """The calls of a key in the window, the latest last."""
    found = tracker.by_key.get(key, _NONE)
    return found if isinstance(found, list) else [found]


def _add(by_key: dict[str, Call | list[Call]], key: str, call: Call) -> None:
    """One more call of a key that is in the window."""
    found = by_key[key]
    if isinstance(found, list):
        found.append(call)
    else:
        by_key[key] = [found, call]


def _forget(tracker: Window, call: Call) -> None:
    """A call has left the window."""
    found = tracker.by_key[call.key]
    if isinstance(found, list):
        found.remove(call)
        if len(found) == 1:
            tracker.by_key[call.key] = found[0]
    else:
        del tracker.by_key[call.key]
        tracker.pending.pop(call.key, None)


_NONE: list[Call] = []
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
