"""One recorded session in a replay: what it says of itself, and its course under each policy."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from policyguard.model.amounts import SCALE
from policyguard.model.event import Admitted, Completed, Event, Refused
from policyguard.model.outcome import Outcome
from policyguard.report.replay.figures import (
    BaselineRunFigures,
    CallFigures,
    ChangedCall,
    ErrorFigures,
    RunFigures,
    SessionChange,
    UnmatchedFigures,
)
from policyguard.simulate.error_kinds import ErrorKinds, ReadOrder
from policyguard.simulate.redacted import with_fingerprints
from policyguard.simulate.session_replay import UNKNOWN, ReplayDecision, SessionReplay
from policyguard.simulate.timeline import Timeline, TimelineCall, excerpt

_MAX_OPEN_CALLS = 1024
"""Calls without a result yet of which a run remembers what they were."""


class ChangedDecision(NamedTuple):
    """A call that one policy refuses and the other does not; `answer` is the one that refuses."""

    shown: TimelineCall
    call_index: int
    decision: ReplayDecision


class Run:
    """A recorded session under the policy, and under the baseline where there is one.

    `order` is its place among all that is read, `opening` whether it is the first of its file,
    `orphan` whether it names a parent that was not at work when it began,
    `last` where in the file it, or a session below it, was last heard of.
    Of what is newly refused, and newly allowed, it has how many calls there are, and the first.
    """

    def __init__(
        self,
        id_: str,
        file: str,
        format_: str,
        order: ReadOrder,
        replays: Sequence[SessionReplay],
        *,
        parent: Run | None,
        is_orphan: bool,
        is_first: bool,
        timeline: bool,
    ) -> None:
        self.id = id_
        self.file = file
        self.format = format_
        self.order = order
        self.parent = parent
        self.is_orphan = is_orphan
        self.is_first = is_first
        self.last_seen = 0
        self.replay = replays[0]
        self.baseline = replays[1] if len(replays) > 1 else None
        self.replays = replays
        self.success: bool | None = None
        self.calls = self.untimed = self.redacted_args = 0
        self.errors = ErrorFigures()
        self.redacted_results = self.redacted_errors = 0
        self.signatures: dict[str, int] = {}
        self.unmatched = ErrorKinds()
        self.newly_refused = self.newly_allowed = 0
        self.first_refused: ChangedDecision | None = None
        self.first_allowed: ChangedDecision | None = None
        self._timeline = Timeline(accepts_calls=timeline)
        self._open_calls: dict[str, tuple[str, TimelineCall | None]] = {}

    def replay_call(self, event: Admitted | Refused) -> None:
        """Judge a recorded call."""
        place = self.calls
        self.calls += 1
        if event.at is None:
            self.untimed += 1
        if event.args is None:
            self.redacted_args += 1
        course, baseline = self.replay, self.baseline
        answer = course.replay_call(event, place)
        diverged = course.first_divergence
        shown = None
        if baseline is not None:
            shown = self._replay_baseline(event, place, answer, baseline)
        elif self._timeline.accepts_calls:
            late = diverged is not None and diverged < place
            shown = TimelineCall(event, place, (answer,), counterfactual=late)
            self._timeline.add(shown, diverged=diverged is not None)
        waiting = self._open_calls
        waiting[event.call] = event.tool, shown
        if len(waiting) > _MAX_OPEN_CALLS:
            del waiting[next(iter(waiting))]

    def replay_result(self, event: Completed) -> None:
        """Take in the recorded result of a call."""
        hidden = False
        if event.result_fingerprint:
            kept = with_fingerprints(event)
            # A text that is empty says nothing, unless it is a journal that hides things.
            hidden = kept is not None and bool(event.text or self.redacted_args)
            self.redacted_results += hidden
            event = kept or event
        outcome = self.replay.replay_result(event, redacted=hidden)
        if self.baseline is not None:
            self.baseline.replay_result(event, redacted=hidden)
        tool, shown = self._open_calls.pop(event.call, ("", None))
        if event.provenance == "unknown":
            self.errors.unknown += 1
        elif event.ok is False:
            if event.provenance == "explicit":
                self.errors.explicit += 1
            else:
                self.errors.inferred += 1
        if not outcome.ok:
            if hidden:
                self.redacted_errors += 1
            else:
                self._count_error(outcome, tool)
        if shown is not None:
            shown.add_result(event, outcome)

    def replay_event(self, event: Event) -> None:
        """Take in anything else that has happened."""
        for course in self.replays:
            course.replay_event(event)

    def touch(self, line: int) -> None:
        """A session below this one was heard of: as long as it is at work, this one is not over."""
        run: Run | None = self
        while run is not None:
            run.last_seen = line
            run = run.parent

    def close(self) -> None:
        """The recording of this session is over."""
        for course in self.replays:
            course.close()

    def figures(self) -> RunFigures:
        """What the session amounts to, without its timeline."""
        course = self.replay
        return RunFigures(
            id=self.id,
            file=self.file,
            format=self.format,
            calls=self.calls,
            success=self.success,
            first_refusal=course.first_refusal,
            refused=course.refused,
            calls_after_first_refusal=course.calls_after_refusal,
            first_rule=course.first_rule,
            first_tool=course.first_tool,
            first_message=course.first_message,
            cost_after_first_refusal=course.cost_after_refusal / SCALE,
            unknown=course.unknown,
            untimed=self.untimed,
            advised=course.effects.get("advise", 0),
            first_divergence=course.first_divergence,
            baseline=self._baseline_figures(),
        )

    def timeline(self) -> list[CallFigures]:
        """Its calls, or of a long session some of them."""
        return self._timeline.figures()

    def changed_figures(self, changed: ChangedDecision) -> ChangedCall:
        """An example of what has changed."""
        answer = changed.decision
        return ChangedCall(
            self.id,
            self.file,
            self.success,
            changed.call_index,
            changed.shown.figures(),
            answer.rule,
            answer.message,
        )

    @property
    def change(self) -> SessionChange:
        """How it fares against the baseline."""
        if self.baseline is None:
            return "same"
        now, before = self.replay, self.baseline
        for course, other in ((now, before), (before, now)):
            if not course.refused and course.unknown and other.refused:
                return "unknown"
        if now.first_refusal == before.first_refusal:
            return "same"
        if now.first_refusal is None:
            return "newly_allowed"
        if before.first_refusal is None:
            return "newly_refused"
        return "earlier" if now.first_refusal < before.first_refusal else "later"

    def _count_error(self, outcome: Outcome, tool: str) -> None:
        """Count an error under the signature that knows it, or under its kind."""
        if outcome.signature:
            count = self.signatures.get(outcome.signature, 0)
            self.signatures[outcome.signature] = count + 1
        else:
            found = UnmatchedFigures(excerpt(outcome.error), 1, tool, self.id, self.file)
            self.unmatched.add(outcome.error_fingerprint, (*self.order, self.calls), found)

    def _replay_baseline(
        self,
        event: Admitted | Refused,
        index: int,
        decision: ReplayDecision,
        baseline: SessionReplay,
    ) -> TimelineCall | None:
        """Judge a call under the baseline too, and note where one refuses it and one does not."""
        answers = decision, baseline.replay_call(event, index)
        ends = self.replay.first_divergence, baseline.first_divergence
        differ = decision.refused is not answers[1].refused and UNKNOWN not in answers
        if not differ and not self._timeline.accepts_calls:
            return None
        late = any(end is not None and end < index for end in ends)
        shown = TimelineCall(event, index, answers, counterfactual=late)
        if self._timeline.accepts_calls:
            self._timeline.add(shown, diverged=ends != (None, None))
        if differ and decision.refused:
            self.newly_refused += 1
            self.first_refused = self.first_refused or ChangedDecision(shown, index, decision)
        elif differ:
            self.newly_allowed += 1
            self.first_allowed = self.first_allowed or ChangedDecision(shown, index, answers[1])
        return shown

    def _baseline_figures(self) -> BaselineRunFigures | None:
        course = self.baseline
        if course is None:
            return None
        return BaselineRunFigures(
            change=self.change,
            refused=course.refused,
            unknown=course.unknown,
            first_refusal=course.first_refusal,
            first_rule=course.first_rule,
            first_message=course.first_message,
        )
