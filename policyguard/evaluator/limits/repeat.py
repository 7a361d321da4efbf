"""`repeat`: the same call again and again.

The policy says what "same" means (`same`, or a CEL `key`). Limits on results or errors count a call
only while nothing changes: the same result each time, and no success of another state-changing call
in between. A pending result that differs from the one before is progress, never a repetition.
"""

from __future__ import annotations

from collections.abc import Callable, Container

import msgspec

from policyguard.evaluator.attempt import Attempt, WindowEntry
from policyguard.evaluator.limits.base import LimitChecker
from policyguard.evaluator.limits.recent_results import find_recent_results
from policyguard.evaluator.limits.state_changes import StateChanges
from policyguard.evaluator.messages import NEVER_ALLOWED, format_times
from policyguard.model.decision import Violation
from policyguard.model.outcome import Outcome

Comparison = Callable[[WindowEntry, WindowEntry], bool]
"""Whether two calls count as the same, by their results or errors."""


class Window(msgspec.Struct, eq=False):
    """The last calls under one limit, in order, and by key: one entry, or a list of several.

    `pending_results` holds the last pending result of each key whose latest result is pending.
    `tools` holds the entries of each tool, where each has a window of its own.
    """

    entries: list[WindowEntry] = msgspec.field(default_factory=list)
    by_key: dict[str, WindowEntry | list[WindowEntry]] = msgspec.field(default_factory=dict)
    pending_results: dict[str, str] = msgspec.field(default_factory=dict)
    tools: dict[str, list[WindowEntry]] | None = None


class RepeatChecker(LimitChecker, eq=False, kw_only=True):
    """Refuses a call that has been admitted `max` times, unchanged, in the last `window` calls.

    With `despite_changes` it does not matter what was changed in between.
    """

    needs_admissions = True
    counts_calls = True

    window: int
    same: str
    key: Callable[[Attempt], str] | None = None
    despite_changes: bool
    compare_by: Comparison | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        self.needs_successes = False  # a success only ends a pending result
        self.may_be_active = True
        self.compare_by = _COMPARE_BY.get(self.same)

    def new_tracker(self) -> Window:
        """Return an empty window."""
        return Window()

    def watched(self, tracker: Window) -> Container[str] | None:
        """Return the calls in the window."""
        return tracker.by_key if self.key is None and self.min_count else None

    def is_active(self, tracker: Window) -> bool:
        """Whether a call's latest result is pending."""
        return bool(tracker.pending_results)

    def subject(self, attempt: Attempt) -> str:
        """Return what makes the call the same."""
        return attempt.keys.get(self.id, "") if self.key is not None else attempt.likeness

    def evaluate(
        self, tracker: Window, attempt: Attempt, changes: StateChanges, refused_count: int
    ) -> Violation | None:
        """Count the calls with this key; with results, the unchanged ones at their end."""
        key = attempt.keys.get(self.id) if self.key is not None else attempt.likeness
        if key is None:
            return Violation(self.id, self.escalation.effect, "repeat", _KEY_FAILED, _INSTEAD)
        entries = _entries_of(tracker, key)
        count = len(entries)
        if count < self.min_count and not refused_count:
            return None
        if entries:
            if self.compare_by is not None:
                since = _NEVER
                if not self.despite_changes:
                    since = changes.last_change_except(attempt.likeness)
                    if entries[-1].is_content:
                        since = max(since, _latest_effect(attempt))
                count = _count_unchanged(entries, self.compare_by, since)
                refused_count = refused_count if count else 0  # void since the change
            elif tracker.pending_results:
                count -= sum(1 for entry in entries if entry.has_new_pending_result)
        effect = self.effect_for(count, refused_count)
        if effect is None:
            return None
        if count and self.max:
            text = _TEXTS[self.same].format(times=format_times(count), max=self.max)
        elif refused_count:
            text = f"this call has been refused {format_times(refused_count)}"
        else:
            text = NEVER_ALLOWED
        return Violation(self.id, effect, "repeat", text, _INSTEAD, count, self.max)

    def admit(self, tracker: Window, attempt: Attempt) -> None:
        """Add the call to the window; the oldest leaves it."""
        entry = attempt.window_entry
        by_key, entries = tracker.by_key, tracker.entries
        if self.key is None:
            key = entry.likeness
        else:
            key = self.subject(attempt)
            entry.set_key(self.id, key)
        if key in by_key:
            _add_entry(by_key, key, entry)
        else:
            by_key[key] = entry
        entries.append(entry)
        if len(entries) > self.window:
            oldest = entries.pop(0)
            key = oldest.likeness if self.key is None else self._key_of(oldest)
            if by_key[key] is oldest and not tracker.pending_results:
                del by_key[key]
            else:
                _remove_entry(tracker, oldest, key)

    def complete(self, tracker: Window, attempt: Attempt, outcome: Outcome) -> None:
        """Note a pending result.

        A result flagged as the harness's fault counts for nothing, nor does a failure where only
        successes count.
        """
        entry = attempt.window_entry
        if outcome.harness_flagged or (self.same == "call_and_success" and not outcome.ok):
            self.release(tracker, attempt)
        elif outcome.state == "pending":
            key = self._key_of(entry)
            earlier = tracker.pending_results.get(key)
            entry.has_new_pending_result = (
                earlier is not None and earlier != outcome.result_fingerprint
            )
            if key in tracker.by_key:  # else it has left the window meanwhile
                tracker.pending_results[key] = outcome.result_fingerprint
        elif tracker.pending_results:
            tracker.pending_results.pop(self._key_of(entry), None)

    def release(self, tracker: Window, attempt: Attempt) -> None:
        """Remove the call from the window."""
        if attempt.window_entry in tracker.entries:
            tracker.entries.remove(attempt.window_entry)
            _remove_entry(tracker, attempt.window_entry, self._key_of(attempt.window_entry))

    def _key_of(self, entry: WindowEntry) -> str:
        """Return the key that an entry of the window was admitted with."""
        return entry.likeness if self.key is None else (entry.keys or {})[self.id]


class RepeatByToolChecker(RepeatChecker, eq=False, kw_only=True):
    """Counts the last `window` calls of each tool apart; of at most `max_tools`, the latest."""

    max_tools: int

    def admit(self, tracker: Window, attempt: Attempt) -> None:
        """Add the call to its tool's window; the oldest leaves it."""
        tools = tracker.tools = tracker.tools or {}
        name = attempt.full_name
        tracker.entries = tools[name] = tools.pop(name, [])
        super().admit(tracker, attempt)
        if len(tools) > self.max_tools:
            for entry in tools.pop(next(iter(tools))):
                _remove_entry(tracker, entry, self._key_of(entry))

    def release(self, tracker: Window, attempt: Attempt) -> None:
        """Remove the call from its tool's window."""
        tracker.entries = (tracker.tools or {}).get(attempt.full_name, [])
        super().release(tracker, attempt)


def _latest_effect(attempt: Attempt) -> int:
    """Return the number of the latest news from a lookup, for a call that may be its cause.

    Who labels thirty items says `spam` to several: each time another item is read.
    """
    if not attempt.bound_plan.plan.is_state_changing(attempt):
        return _NEVER
    return max((recent.news_seq for recent in find_recent_results(attempt.session)), default=_NEVER)


def _has_same_result(entry: WindowEntry, latest: WindowEntry) -> bool:
    return entry.has_result_of(latest)


def _has_same_error(entry: WindowEntry, latest: WindowEntry) -> bool:
    error = entry.error_fingerprint  # empty for a success, which never has the same error
    return bool(error) and error == latest.error_fingerprint


def _count_unchanged(entries: list[WindowEntry], is_same: Comparison, since: int) -> int:
    """Count the calls at the end that share one result, nothing changed since.

    A call without a result counts among results: a host may never report it, or cancel each, and
    an agent may ask for the same call many times at once. Retries after a harness failure do not
    count: other limits bound them.
    """
    count = 0
    later: WindowEntry | None = None
    for entry in reversed(entries):
        if entry.is_exempt:
            continue
        if entry.result_fingerprint is None:
            count += is_same is _has_same_result and entry.seq >= since
            continue
        if not is_same(entry, later or entry) or entry.seq <= since:
            break
        later = entry
        count += 1
    return count


def _entries_of(tracker: Window, key: str) -> list[WindowEntry]:
    """Return the entries with a key, the latest last."""
    found = tracker.by_key.get(key, _NO_ENTRIES)
    return found if isinstance(found, list) else [found]


def _add_entry(
    by_key: dict[str, WindowEntry | list[WindowEntry]], key: str, entry: WindowEntry
) -> None:
    """Add an entry to others with its key."""
    found = by_key[key]
    if isinstance(found, list):
        found.append(entry)
    else:
        by_key[key] = [found, entry]


def _remove_entry(tracker: Window, entry: WindowEntry, key: str) -> None:
    """Remove an entry from those with its key."""
    found = tracker.by_key[key]
    if isinstance(found, list):
        found.remove(entry)
        if len(found) == 1:
            tracker.by_key[key] = found[0]
    else:
        del tracker.by_key[key]
        tracker.pending_results.pop(key, None)


_COMPARE_BY: dict[str, Comparison] = {
    "call_and_result": _has_same_result,
    "call_and_error": _has_same_error,
    "error": _has_same_error,
}
_NEVER = -1
_NO_ENTRIES: list[WindowEntry] = []
_KEY_FAILED = "cannot tell if this call repeats: its `key` failed to evaluate"
_INSTEAD = "change the arguments or the approach, or finish with what you have"
_TEXTS = {
    "call": "the same call has been made {times} already (at most {max})",
    "call_and_result": "the same call has been made {times} and its result has not changed",
    "call_and_error": "the same call has failed {times} with the same error",
    "call_and_success": "the same call has succeeded {times} already (at most {max})",
    "error": "this tool has failed {times} with the same error",
    "target": "this tool has been called on the same target {times} already (at most {max})",
    "key": "a call of the same kind has been made {times} already (at most {max})",
}
