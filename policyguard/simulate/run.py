"""One recorded session in a replay: what it says of itself, and its course under each policy."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from policyguard.model.event import Admitted, Completed, Event, Refused
from policyguard.model.outcome import Outcome
from policyguard.model.quantity import UNIT
from policyguard.report.figures import (
    BaselineRun,
    CallFigures,
    Change,
    ChangedCall,
    ErrorFigures,
    RunFigures,
    UnmatchedFigures,
)
from policyguard.simulate.answer import UNKNOWN, Answer
from policyguard.simulate.course import Course
from policyguard.simulate.errors import ErrorKinds, Order
from policyguard.simulate.hidden import without_text
from policyguard.simulate.timeline import ShownCall, Timeline, cut

_WAITING = 1024
"""Calls without a result yet of which a run remembers what they were."""


class Differing(NamedTuple):
    """A call that one policy refuses and the other does not; `answer` is the one that refuses."""

    shown: ShownCall
    place: int
    answer: Answer


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
        order: Order,
        courses: Sequence[Course],
        *,
        parent: Run | None,
        orphan: bool,
        opening: bool,
        timeline: bool,
    ) -> None:
        self.id = id_
        self.file = file
        self.format = format_
        self.order = order
        self.parent = parent
        self.orphan = orphan
        self.opening = opening
        self.last = 0
        self.course = courses[0]
        self.baseline = courses[1] if len(courses) > 1 else None
        self.courses = courses
        self.success: bool | None = None
        self.calls = self.untimed = self.hidden_args = 0
        self.errors = ErrorFigures()
        self.hidden_results = self.hidden_errors = 0
        self.signatures: dict[str, int] = {}
        self.unmatched = ErrorKinds()
        self.newly_refused = self.newly_allowed = 0
        self.first_refused: Differing | None = None
        self.first_allowed: Differing | None = None
        self._timeline = Timeline(wanted=timeline)
        self._waiting: dict[str, tuple[str, ShownCall | None]] = {}

    def call(self, event: Admitted | Refused) -> None:
        """Judge a recorded call."""
        place = self.calls
        self.calls += 1
        if event.at is None:
            self.untimed += 1
        if event.args is None:
            self.hidden_args += 1
        course, baseline = self.course, self.baseline
        answer = course.call(event, place)
        diverged = course.first_divergence
        shown = None
        if baseline is not None:
            shown = self._both(event, place, answer, baseline)
        elif self._timeline.wanted:
            late = diverged is not None and diverged < place
            shown = ShownCall(event, place, (answer,), counterfactual=late)
            self._timeline.add(shown, diverged=diverged is not None)
        waiting = self._waiting
        waiting[event.call] = event.tool, shown
        if len(waiting) > _WAITING:
            del waiting[next(iter(waiting))]

    def result(self, event: Completed) -> None:
        """Take in the recorded result of a call."""
        hidden = False
        if event.result_fingerprint:
            kept = without_text(event)
            # A text that is empty says nothing, unless it is a journal that hides things.
            hidden = kept is not None and bool(event.text or self.hidden_args)
            self.hidden_results += hidden
            event = kept or event
        outcome = self.course.result(event, hidden=hidden)
        if self.baseline is not None:
            self.baseline.result(event, hidden=hidden)
        tool, shown = self._waiting.pop(event.call, ("", None))
        if event.known == "unknown":
            self.errors.unknown += 1
        elif event.ok is False:
            if event.known == "explicit":
                self.errors.explicit += 1
            else:
                self.errors.inferred += 1
        if not outcome.ok:
            if hidden:
                self.hidden_errors += 1
            else:
                self._failed(outcome, tool)
        if shown is not None:
            shown.result(event, outcome)

    def other(self, event: Event) -> None:
        """Take in anything else that has happened."""
        for course in self.courses:
            course.other(event)

    def touch(self, place: int) -> None:
        """A session below this one was heard of: as long as it is at work, this one is not over."""
        run: Run | None = self
        while run is not None:
            run.last = place
            run = run.parent

    def close(self) -> None:
        """The recording of this session is over."""
        for course in self.courses:
            course.close()

    def figures(self) -> RunFigures:
        """What the session amounts to, without its timeline."""
        course = self.course
        return RunFigures(
            id=self.id,
            file=self.file,
            format=self.format,
            calls=self.calls,
            success=self.success,
            first_refusal=course.first_refusal,
            refused=course.refused,
            calls_after_first_refusal=course.calls_after,
            first_rule=course.first_rule,
            first_tool=course.first_tool,
            first_message=course.first_message,
            cost_after_first_refusal=course.cost_after / UNIT,
            unknown=course.unknown,
            untimed=self.untimed,
            advised=course.effects.get("advise", 0),
            first_divergence=course.first_divergence,
            baseline=self._baseline_figures(),
        )

    def timeline(self) -> list[CallFigures]:
        """Its calls, or of a long session some of them."""
        return self._timeline.figures()

    def changed(self, differing: Differing) -> ChangedCall:
        """An example of what has changed."""
        answer = differing.answer
        return ChangedCall(
            self.id,
            self.file,
            self.success,
            differing.place,
            differing.shown.figures(),
            answer.rule,
            answer.message,
        )

    @property
    def change(self) -> Change:
        """How it fares against the baseline."""
        if self.baseline is None:
            return "same"
        now, before = self.course, self.baseline
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

    def _failed(self, outcome: Outcome, tool: str) -> None:
        """Count an error under the signature that knows it, or under its kind."""
        if outcome.signature:
            count = self.signatures.get(outcome.signature, 0)
            self.signatures[outcome.signature] = count + 1
        else:
            found = UnmatchedFigures(cut(outcome.error), 1, tool, self.id, self.file)
            self.unmatched.add(outcome.failure, (*self.order, self.calls), found)

    def _both(
        self, event: Admitted | Refused, place: int, answer: Answer, baseline: Course
    ) -> ShownCall | None:
        """Judge a call under the baseline too, and note where one refuses it and one does not."""
        answers = answer, baseline.call(event, place)
        ends = self.course.first_divergence, baseline.first_divergence
        differ = answer.refused is not answers[1].refused and UNKNOWN not in answers
        if not differ and not self._timeline.wanted:
            return None
        late = any(end is not None and end < place for end in ends)
        shown = ShownCall(event, place, answers, counterfactual=late)
        if self._timeline.wanted:
            self._timeline.add(shown, diverged=ends != (None, None))
        if differ and answer.refused:
            self.newly_refused += 1
            self.first_refused = self.first_refused or Differing(shown, place, answer)
        elif differ:
            self.newly_allowed += 1
            self.first_allowed = self.first_allowed or Differing(shown, place, answers[1])
        return shown

    def _baseline_figures(self) -> BaselineRun | None:
        course = self.baseline
        if course is None:
            return None
        return BaselineRun(
            change=self.change,
            refused=course.refused,
            unknown=course.unknown,
            first_refusal=course.first_refusal,
            first_rule=course.first_rule,
            first_message=course.first_message,
        )
