"""`repeat`: the same call again and again.

What "the same" means is the policy's word (`same`, or a CEL `key`). Those that look at results or
errors count a call only while nothing has changed: the same result each time, and no success of
another state-changing call in between (see `changes`). A result that is still pending and differs
from the one before is never a repetition: somebody waits, and it goes on.
"""

from __future__ import annotations

from collections.abc import Callable, Container

from policyguard.evaluator.attempt import Attempt, WindowEntry
from policyguard.evaluator.limits.base import LimitChecker, LimitSettings
from policyguard.evaluator.limits.state_changes import StateChanges
from policyguard.evaluator.messages import NEVER_ALLOWED, format_times
from policyguard.model.decision import Violation
from policyguard.model.outcome import Outcome


class Window:
    """The last calls under one limit, in order, and by key: one call, or a list of several.

    `pending` is the last pending result of each key that is being waited for.
    """

    __slots__ = ("by_key", "entries", "pending_results")

    def __init__(self) -> None:
        self.entries: list[WindowEntry] = []
        self.by_key: dict[str, WindowEntry | list[WindowEntry]] = {}
        self.pending_results: dict[str, str] = {}


class RepeatChecker(LimitChecker):
    """Refuses a call that has been admitted `max` times, unchanged, in the last `window` calls."""

    __slots__ = ("compare_by", "key", "same", "window")

    needs_admissions = True

    def __init__(
        self,
        settings: LimitSettings,
        *,
        max: int,  # noqa: A002 - the field's name in the language
        window: int,
        same: str,
        key: Callable[[Attempt], str] | None = None,
    ) -> None:
        super().__init__(settings, max)
        self.needs_successes = False  # a success only ends what is pending
        self.window = window
        self.same = same
        self.key = key
        self.compare_by = {
            "call_and_result": _get_result,
            "call_and_error": _get_error,
            "error": _get_error,
        }.get(same if key is None or same == "error" else "")

    def new_tracker(self) -> Window:
        """An empty window."""
        return Window()

    def watched(self, tracker: Window) -> Container[str] | None:
        """The calls in the window."""
        return tracker.by_key if self.key is None and self.min_count else None

    def is_active(self, tracker: Window) -> bool:
        """Whether something is being waited for."""
        return bool(tracker.pending_results)

    def subject(self, attempt: Attempt) -> str:
        """What makes the call the same."""
        return attempt.keys.get(self.id, "") if self.key is not None else attempt.fingerprint

    def evaluate(
        self, tracker: Window, attempt: Attempt, changes: StateChanges, refused_count: int
    ) -> Violation | None:
        """Counts this key's calls in the window; with results, the unchanged run at its end."""
        key = attempt.keys.get(self.id) if self.key is not None else attempt.fingerprint
        if key is None:  # an expression failed: what cannot be told counts against the call
            return Violation(self.id, self.escalation.effect, "repeat", _KEY_FAILED, _INSTEAD)
        calls = _entries_of(tracker, key)
        count = len(calls)
        if count < self.min_count and not refused_count:
            return None
        if calls:
            if self.compare_by is not None:
                count = _count_unchanged(
                    calls, self.compare_by, changes.last_change_except(attempt.fingerprint)
                )
                refused_count = (
                    refused_count if count else 0
                )  # what was refused before a change is void
            elif tracker.pending_results:
                count -= sum(1 for call in calls if call.has_new_pending_result)
        effect = self.effect_for(count, refused_count)
        if effect is None:
            return None
        if count:
            text = _TEXTS[self.same].format(times=format_times(count), max=self.max)
        elif refused_count:
            text = f"this call has been refused {format_times(refused_count)}"
        else:
            text = NEVER_ALLOWED
        return Violation(self.id, effect, "repeat", text, _INSTEAD, count, self.max)

    def admit(self, tracker: Window, attempt: Attempt) -> None:
        """The call takes its place; the oldest leaves the window."""
        call = attempt.window_entry
        if self.key is not None:
            call.key = self.subject(attempt)
        key, by_key, ring = call.key, tracker.by_key, tracker.entries
        if key in by_key:
            _add_entry(by_key, key, call)
        else:
            by_key[key] = call
        ring.append(call)
        if len(ring) > self.window:
            oldest = ring.pop(0)
            if by_key[oldest.key] is oldest and not tracker.pending_results:
                del by_key[oldest.key]
            else:
                _remove_entry(tracker, oldest)

    def complete(self, tracker: Window, attempt: Attempt, outcome: Outcome) -> None:
        """The call's result is known. One that the harness is to blame for has told nothing."""
        call = attempt.window_entry
        if outcome.harness_flagged:
            self.release(tracker, attempt)
        elif outcome.state == "pending":
            before = tracker.pending_results.get(call.key)
            call.has_new_pending_result = (
                before is not None and before != outcome.result_fingerprint
            )
            if call.key in tracker.by_key:  # else it has left the window meanwhile
                tracker.pending_results[call.key] = outcome.result_fingerprint
        elif tracker.pending_results:
            tracker.pending_results.pop(call.key, None)

    def release(self, tracker: Window, attempt: Attempt) -> None:
        """The call leaves the window."""
        if attempt.window_entry in tracker.entries:
            tracker.entries.remove(attempt.window_entry)
            _remove_entry(tracker, attempt.window_entry)


def _get_result(call: WindowEntry) -> str | None:
    return call.result_fingerprint


def _get_error(call: WindowEntry) -> str:
    return call.error_fingerprint  # empty for a success, which is never the same error


def _count_unchanged(
    calls: list[WindowEntry], compare_by: Callable[[WindowEntry], str | None], since: int
) -> int:
    """How many completed calls at the end of `calls` share one result, nothing changed since.

    To try again after an outage is no loop: how long it may go on, other limits say.
    """
    run = 0
    result = None
    for call in reversed(calls):
        if call.result_fingerprint is None or call.blames_harness:
            continue
        told = compare_by(call)
        if result is None:
            result = told
        if told != result or not result or call.seq <= since:
            break
        run += 1
    return run


def _entries_of(tracker: Window, key: str) -> list[WindowEntry]:
    """The calls of a key in the window, the latest last."""
    found = tracker.by_key.get(key, _NO_ENTRIES)
    return found if isinstance(found, list) else [found]


def _add_entry(
    by_key: dict[str, WindowEntry | list[WindowEntry]], key: str, call: WindowEntry
) -> None:
    """One more call of a key that is in the window."""
    found = by_key[key]
    if isinstance(found, list):
        found.append(call)
    else:
        by_key[key] = [found, call]


def _remove_entry(tracker: Window, call: WindowEntry) -> None:
    """A call has left the window."""
    found = tracker.by_key[call.key]
    if isinstance(found, list):
        found.remove(call)
        if len(found) == 1:
            tracker.by_key[call.key] = found[0]
    else:
        del tracker.by_key[call.key]
        tracker.pending_results.pop(call.key, None)


_NO_ENTRIES: list[WindowEntry] = []
_KEY_FAILED = "whether this call is a repetition cannot be told: its `key` has no value"
_INSTEAD = "change the arguments or the approach, or finish with what you have"
_TEXTS = {
    "call": "the same call has been made {times} already (at most {max})",
    "call_and_result": "the same call has been made {times} and its result has not changed",
    "call_and_error": "the same call has failed {times} with the same error",
    "error": "this tool has failed {times} with the same error",
    "target": "this tool has been called on the same target {times} already (at most {max})",
    "key": "a call of the same kind has been made {times} already (at most {max})",
}
