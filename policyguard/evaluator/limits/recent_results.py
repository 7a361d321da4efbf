"""What calls have returned lately: by call, by tool, and whether any of it was new."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import msgspec

from policyguard.evaluator.attempt import ECHO_MARK, Attempt, WindowEntry

if TYPE_CHECKING:
    from policyguard.evaluator.session_state import SessionState

TRACKER_ID = "recent_results"
"""All limits on recent results share one tracker, in a session or turn."""

_MAX_RESULTS = 4
"""Different results of one call that count as seen."""


class RecentResults(msgspec.Struct, eq=False):
    """The results of the latest `window` different calls, in one session or turn.

    `calls` holds them by likeness, the latest last: one entry, or several with different results.
    `unchanged` counts how often in a row a call has returned the same, if more than once, since
    another call has returned something else than before; tests that pass each time do not count.
    `tools` holds the latest result of each tool since something else was new, `tool_rows` how often
    in a row it has come, if more than once. `stale_count` is how many calls in a row have returned
    what they had returned before. `known_answers` holds the latest `window` results of whichever
    calls, once a call has been made again, `known_count` how many calls in a row have returned one
    of these. `news_seq` is the number of the latest success of a call that changes nothing, since
    a call has been made again, whose answer was not among these.
    """

    window: int
    calls: dict[str, WindowEntry | list[WindowEntry]] = msgspec.field(default_factory=dict)
    unchanged: dict[str, int] = msgspec.field(default_factory=dict)
    tools: dict[str, WindowEntry] = msgspec.field(default_factory=dict)
    tool_rows: dict[str, int] = msgspec.field(default_factory=dict)
    stale_count: int = 0
    known_answers: dict[str, None] | None = None
    known_count: int = 0
    news_seq: int = 0

    def latest_news(self) -> int:
        """Return the number of the latest success that brought something new; 0 for none."""
        return max((entry.seq for entry in self.tools.values() if not entry.is_stale), default=0)

    def has_changed_since(self, attempt: Attempt) -> bool:
        """Whether another call has changed something since one like this was made before."""
        known = self.calls.get(attempt.likeness)
        last = known[-1] if isinstance(known, list) else known
        changes = attempt.session.state_changes
        return last is not None and changes.last_change_except(attempt.likeness) > last.seq

    def note(self, attempt: Attempt, entry: WindowEntry, succeeded: bool, /) -> None:
        """Note a result that is not pending, nor a failure of the harness."""
        calls, likeness = self.calls, entry.likeness
        if likeness in calls:
            self._note_again(attempt, entry, succeeded)
        else:
            if self.known_answers is not None:
                self.stale_count = 0
                self._note_answer(attempt, entry, is_known=False)
            calls[likeness] = entry
            if len(calls) > self.window:
                for oldest in calls:  # noqa: B007 - the first; faster than `next(iter(calls))`
                    break
                del calls[oldest]
                if self.unchanged:
                    self.unchanged.pop(oldest, None)
        if succeeded:
            tool = attempt.full_name if attempt.server else attempt.tool
            tools = self.tools
            last = tools.get(tool)
            if last is None or (
                last.result_fingerprint != entry.result_fingerprint
                and not (entry.like_result and entry.has_answer_of(last))
            ):
                if entry.is_stale:
                    self.tool_rows.pop(tool, None)
                elif last is None:
                    self._end_rows_of_others(entry)
                else:
                    if len(tools) > 1:
                        tools.clear()
                    if self.tool_rows:
                        self.tool_rows.clear()
                tools[tool] = entry
            elif attempt.bound_plan.plan.is_state_changing(attempt):
                tools.clear()
                self.tool_rows.clear()
            else:
                entry.is_stale = True
                self.tool_rows[tool] = self.tool_rows.get(tool, 1) + 1

    def _note_again(self, attempt: Attempt, entry: WindowEntry, succeeded: bool) -> None:
        """Note the result of a call that was made before.

        Another result says that what was done has had an effect. But who only looks at what was
        changed sees just that: a test that fails as before still does.
        """
        likeness = entry.likeness
        if self.known_answers is None:
            self.known_answers = dict.fromkeys(self._list_results())
            attempt.session.has_repeated = True
        known = self.calls.pop(likeness)
        entries = known if isinstance(known, list) else [known]
        if entry.has_result_of(entries[-1]):
            if not entry.is_content:
                self.unchanged[likeness] = self._count_since(attempt, entries[-1]) + 1
        elif attempt.bound_plan.plan.is_state_changing(attempt):
            self.unchanged.clear()
        else:
            self._forget_unchanged_successes()
        same = next((one for one in entries if entry.has_result_of(one)), None)
        self._note_answer(attempt, entry, is_known=same is not None)
        if same is None:
            self.stale_count = 0
        else:
            self.stale_count += 1
            entry.is_stale = succeeded
            entries.remove(same)
        entries.append(entry)
        self.calls[likeness] = entries[-_MAX_RESULTS:] if len(entries) > 1 else entry

    def count_unchanged(self, attempt: Attempt) -> int | None:
        """Return how often in a row a call has returned the same; None if it is not recent."""
        known = self.calls.get(attempt.likeness)
        latest = known[-1] if isinstance(known, list) else known
        return None if latest is None else self._count_since(attempt, latest)

    def _count_since(self, attempt: Attempt, latest: WindowEntry) -> int:
        """Return how often in a row a call has returned the same, up to its latest result.

        Who looks a template up for each of twenty customers finds it unchanged, and goes on: a
        lookup that succeeds counts anew once another has brought something new.
        """
        has_news = self.news_seq > latest.seq and not latest.has_failed
        if has_news and not attempt.bound_plan.plan.is_state_changing(attempt):
            return 1
        return self.unchanged.get(attempt.likeness, 1)

    def _end_rows_of_others(self, entry: WindowEntry) -> None:
        """End the rows of all tools, unless the result is that of one: two may search in turn."""
        if not any(
            entry.result_fingerprint == other.result_fingerprint or entry.has_answer_of(other)
            for other in self.tools.values()
        ):
            self.tools.clear()
            self.tool_rows.clear()

    def _note_answer(self, attempt: Attempt, entry: WindowEntry, *, is_known: bool) -> None:
        """Note whether a result is one that some call has returned lately."""
        answer, answers = entry.answer, self.known_answers
        if answer is None or answers is None:
            return
        if answer == ECHO_MARK or answer in answers or entry.result_fingerprint in answers:
            is_known = True
        if is_known:
            self.known_count += 1
        else:
            self.known_count = 0
            if not (entry.has_failed or attempt.bound_plan.plan.is_state_changing(attempt)):
                self.news_seq = entry.seq
        answers.pop(answer, None)
        answers[answer] = None
        if len(answers) > self.window:
            del answers[next(iter(answers))]

    def _list_results(self) -> list[str]:
        """Return the results of the recent calls, the latest last."""
        return [
            entry.result_fingerprint
            for known in self.calls.values()
            for entry in (known if isinstance(known, list) else [known])
            if entry.result_fingerprint is not None
        ]

    def _forget_unchanged_successes(self) -> None:
        """Begin anew to count how often calls that succeed have returned the same."""
        for likeness in list(self.unchanged):
            known = self.calls.get(likeness)
            latest = known[-1] if isinstance(known, list) else known
            if latest is None or not latest.error_fingerprint:
                del self.unchanged[likeness]


def find_recent_results(session: SessionState) -> Iterator[RecentResults]:
    """Yield those of the turn and of the session, if a limit goes by them."""
    for trackers in (session.turn_trackers, session.trackers):
        recent: RecentResults | None = trackers.get(TRACKER_ID)
        if recent is not None:
            yield recent
