"""`failures`: failure after failure, whatever the arguments."""

from __future__ import annotations

from collections.abc import Container

import msgspec

from policyguard.evaluator.attempt import Attempt
from policyguard.evaluator.limits.base import LimitChecker
from policyguard.evaluator.limits.probes import ProbeSchedule
from policyguard.evaluator.limits.state_changes import StateChanges
from policyguard.evaluator.messages import NEVER_ALLOWED, format_streak
from policyguard.model.decision import Violation
from policyguard.model.effect import Effect
from policyguard.model.outcome import Outcome


class FailureStreak(msgspec.Struct, eq=False):
    """Consecutive failures: how many, with which error, of which tools and batches.

    A session may have one for each of its calls, so it holds only what its limit asks for.
    """

    error_fingerprint: str
    probes: ProbeSchedule
    count: int = 0
    batches: dict[str, None] | None = None
    tools: dict[str, None] | None = None


FailureStreaks = dict[str, FailureStreak]
"""Streaks by tool or call; a limit that counts neither apart has one, under an empty name."""


class FailuresChecker(LimitChecker, eq=False, kw_only=True):
    """Refuses calls after `max` consecutive failures; parallel calls of one batch count once.

    `by` is `tool` or `call` where each has a streak of its own; then only its own success ends it,
    and a change of state, unless the limit counts `despite_changes`. A success that brings nothing
    new ends none. With `same` only the same `error` (masked) or the same `result` (word for word)
    continues a streak, with `signature` only failures of that signature; then only the tools of the
    streak are refused, so that another tool's success can end it. Pending results, and those that
    the host flags as the harness's fault, change nothing. At most `max_names` tools and batches are
    kept, the first goes first.

    A limit that `admits_probes` admits, now and then, a call that has not failed in the streak: its
    success ends the streak. A limit that asks or halts, or sets a ban, admits none. With `until:
    progress` only a new result ends a full streak.
    """

    counts_outcomes_only = True
    counts_calls = True
    counts_streaks = True

    by: str = ""
    same: str
    despite_changes: bool
    signature: str
    max_names: int
    admits_probes: bool = False
    tells_tools: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        self.tells_tools = bool(self.same or self.signature) or self.by == "tool"
        self.rows_by_call = self.by == "call" and not self.always_evaluated and not self.sets_bans
        if self.rows_by_call:
            self.may_be_active = False  # the calls that have failed are watched
        self.admits_probes = (
            self.max > 0
            and self.escalation.effect is Effect.BLOCK
            and not self.refuse_tool
            and self.by != "call"
            and self.until in ("", "progress")
        )

    def new_tracker(self) -> FailureStreaks:
        """Return no streak."""
        return {}

    def watched(self, tracker: FailureStreaks) -> Container[str] | None:
        """Return the calls that have failed, if each is counted apart."""
        return tracker if self.rows_by_call else super().watched(tracker)

    def is_active(self, tracker: FailureStreaks) -> bool:
        """Whether a streak is so long that it may stop a call."""
        for streak in tracker.values():  # noqa: SIM110 - a generator is slower
            if streak.count >= self.min_count:
                return True
        return False

    def subject(self, attempt: Attempt) -> str:
        """Return one subject for all attempts; with one error or signature, the tool."""
        if self.by:
            return self._streak_name(attempt)
        return attempt.full_name if self.same or self.signature else ""

    def _streak_name(self, attempt: Attempt) -> str:
        if not self.by:
            return ""
        return attempt.full_name if self.by == "tool" else attempt.likeness

    def evaluate(
        self, tracker: FailureStreaks, attempt: Attempt, changes: StateChanges, refused_count: int
    ) -> Violation | None:
        """Return the violation of an attempt that a full streak stops."""
        streak = tracker.get(self._streak_name(attempt), _NO_STREAK)
        count = streak.count
        if (count < self.min_count and not refused_count) or (not count and self.max):
            return None
        if self.max and not self._is_covered(streak, attempt):
            return None
        effect = self.effect_for(count, refused_count)
        if effect is None:
            return None
        if not count:
            return Violation(self.id, effect, "failures", NEVER_ALLOWED, _INSTEAD, 0, self.max)
        by_tool = self.tells_tools
        how = "with the same error" if self.same else "in a row"
        of_one_tool = by_tool and len(streak.tools or ()) == 1
        calls = f"calls of `{attempt.shown_tool}`" if of_one_tool else "calls"
        text = f"{calls} have failed {format_streak(count, how)}"
        if self.by == "call":
            text = f"this call has failed {format_streak(count, how)}"
        if self._admits_probe(streak, attempt):
            text = f"{text}; this call has not, and is tried once"
            return Violation(self.id, Effect.ADVISE, "failures", text, _PROBED)
        instead = _OTHER_CALL if self.by == "call" else _OTHER_TOOL if by_tool else _INSTEAD
        if streak.probes.is_probing(attempt.at, self.probe_timeout):
            effect = min(effect, self.escalation.effect)  # it only did not wait for the probe
            probe = streak.probes.probe
            assert probe is not None  # noqa: S101 - it is in flight
            text = f"{text}; a call of `{probe.shown_tool}` is being tried, and has no result yet"
            instead = _WAIT
        return Violation(self.id, effect, "failures", text, instead, count, self.max)

    def _is_covered(self, streak: FailureStreak, attempt: Attempt) -> bool:
        """Whether the attempt's tool is one that the streak is about."""
        if not (self.same or self.signature):
            return True
        return streak.tools is not None and attempt.full_name in streak.tools

    def is_next_probe(self, tracker: FailureStreaks, attempt: Attempt) -> bool:
        """Whether a full streak admits the attempt as its next probe."""
        streak = tracker.get(self._streak_name(attempt))
        return streak is not None and self._admits_probe(streak, attempt)

    def is_probing(self, tracker: FailureStreaks, at: int | None) -> bool:
        """Whether a probe is in flight."""
        return any(streak.probes.is_probing(at, self.probe_timeout) for streak in tracker.values())

    def allow_retry(self, tracker: FailureStreaks, subject: str) -> None:
        """Admit one more call: if it fails, the streak is full again."""
        streak = tracker.get(subject if self.by else "")
        if streak is not None:
            streak.count = min(streak.count, self.max - 1)

    def _admits_probe(self, streak: FailureStreak, attempt: Attempt) -> bool:
        return (
            self.admits_probes
            and streak.count >= self.max
            and self._is_covered(streak, attempt)
            and streak.probes.is_due(attempt, self.max_names, self.probe_timeout)
        )

    def is_probe(self, attempt: Attempt) -> bool:
        """Whether the attempt was admitted as a probe."""
        return self.id in attempt.limit_notes

    def admit(self, tracker: FailureStreaks, attempt: Attempt) -> None:
        """Take the call as the probe, if one is due."""
        streak = tracker.get(self._streak_name(attempt))
        if streak is None or streak.count < self.max or not self._is_covered(streak, attempt):
            return
        if self._admits_probe(streak, attempt):
            streak.probes.begin(attempt)
            attempt.add_limit_note(self.id, streak)
        elif self.admits_probes:  # approved, or admitted by the mode `observe`
            streak.probes.refuse(attempt, self.probe_timeout)

    def refuse(self, tracker: FailureStreaks, attempt: Attempt) -> None:
        """Count a refusal, unless the limit refused nothing but advised on a probe."""
        streak = tracker.get(self._streak_name(attempt))
        if streak is None or not self.admits_probes:
            return
        if not self._admits_probe(streak, attempt):
            streak.probes.refuse(attempt, self.probe_timeout)

    def release(self, tracker: FailureStreaks, attempt: Attempt) -> None:
        """Let another call be the probe."""
        streak = attempt.limit_notes.get(self.id)
        if streak is not None:
            streak.probes.end(attempt)

    def cancel(self, tracker: FailureStreaks, attempt: Attempt) -> None:
        """Let another call be the probe, but not sooner than after a failed one."""
        streak = attempt.limit_notes.get(self.id)
        if streak is not None:
            streak.probes.cancel(attempt)

    def complete(self, tracker: FailureStreaks, attempt: Attempt, outcome: Outcome) -> None:
        """End the streak with a success; continue it with a failure, or begin another."""
        if outcome.ok and not tracker:
            return
        probed, is_probe = None, False
        if attempt.limit_notes:
            probed = attempt.limit_notes.get(self.id)
            if probed is not None:
                is_probe = probed.probes.probe is attempt  # no later one began
                probed.probes.end(attempt)
        if outcome.state == "pending" or outcome.harness_flagged:
            return
        name = self._streak_name(attempt)
        streak = tracker.get(name)
        holds = self.until == "progress" and streak is not None and streak.count >= self.max
        if outcome.ok:
            if (outcome.advancing or not holds) and not attempt.window_entry.is_stale:
                self._end_streaks(tracker, name, attempt)
            return
        if self.signature and outcome.signature != self.signature and not holds:
            tracker.pop(name, None)
            return
        error = ""
        if self.same:
            by_error = self.same == "error"
            error = outcome.error_fingerprint if by_error else outcome.result_fingerprint
        if streak is not None:
            del tracker[name]  # the latest is last
        if streak is None or (error != streak.error_fingerprint and not holds):
            probes = ProbeSchedule(self.max) if self.admits_probes else _NO_PROBES
            streak = FailureStreak(error, probes)
        tracker[name] = streak
        if len(tracker) > self.max_names:
            del tracker[next(iter(tracker))]
        if self.tells_tools:
            streak.tools = self._add(streak.tools, attempt.full_name)
        if self.admits_probes:
            is_probe = is_probe and streak is probed
            streak.probes.add_failure(attempt, self.max_names, is_probe=is_probe)
        if attempt.batch:
            if streak.batches is not None and attempt.batch in streak.batches:
                return
            streak.batches = self._add(streak.batches, attempt.batch)
        streak.count += 1

    def _end_streaks(self, tracker: FailureStreaks, name: str, attempt: Attempt) -> None:
        """End the streak of a call that succeeded; all of them, if it may have changed state."""
        is_apart = self.by and self.despite_changes
        if is_apart or (self.by and not attempt.bound_plan.plan.is_state_changing(attempt)):
            tracker.pop(name, None)
        else:
            tracker.clear()

    def _add(self, names: dict[str, None] | None, name: str) -> dict[str, None]:
        names = {} if names is None else names
        names[name] = None
        if len(names) > self.max_names:
            del names[next(iter(names))]
        return names


_NO_PROBES = ProbeSchedule(0)
_NO_STREAK = FailureStreak("", _NO_PROBES)
_INSTEAD = "find the cause by other means before you try again, or finish with what you have"
_OTHER_TOOL = (
    "find the cause with another tool; once that succeeds, you can use this one again; or finish "
    "and report what prevents you"
)
_WAIT = "wait for that result; if it does not come, report what prevents you"
_OTHER_CALL = "change the arguments or the approach, or report what prevents you"
_PROBED = "if it fails too, report what prevents you"
