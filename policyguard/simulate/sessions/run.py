"""One recorded session in a replay: its own figures, and its replay under each policy."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Sequence
from typing import NamedTuple

from policyguard.model.amounts import SCALE
from policyguard.model.event import Admitted, CandidateDiffered, Completed, Event, Refused
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
from policyguard.simulate.sessions.error_kinds import ErrorKinds, ReadOrder
from policyguard.simulate.sessions.redacted import with_fingerprints
from policyguard.simulate.sessions.session_replay import UNKNOWN, ReplayDecision, SessionReplay
from policyguard.simulate.sessions.timeline import Timeline, TimelineCall, excerpt

_REFUSING = frozenset(("ask", "block", "halt"))
_MAX_OPEN_CALLS = 1024
"""Calls without a result that a run remembers."""


class ChangedDecision(NamedTuple):
    """A call that only one policy refuses, with the decision that refuses it."""

    shown: TimelineCall
    call_index: int
    decision: ReplayDecision


class Run:
    """A recorded session under the policy, and under the baseline if there is one.

    `source` is the file that a converted session comes from, else empty; labels name that, or
    `file`. `order` is its position in everything that is read; `is_first`: it is the first session
    of its file; `is_orphan`: its parent was not active when it started. `last_seen` is the line
    where it or a descendant last had an event. `newly_refused` and `newly_allowed` count calls, the
    first of which are `first_refused` and `first_allowed`. `candidates` counts calls on which
    candidate policies differed when it was recorded, by kind.

    `root` is the first of its session tree; `tree_counts` are for a sample to count, until
    the root `is_counted`.
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
        agent: str = "",
        source: str = "",
    ) -> None:
        self.id = id_
        self.source = source
        self.agent = agent
        self.file = file
        self.format = format_
        self.order = order
        self.parent = parent
        self.root: Run = self if parent is None else parent.root
        self.tree_counts: Counter[tuple[Hashable, ...]] = Counter()
        self.is_counted = False
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
        self.candidates: dict[str, int] = {}
        self._timeline = Timeline(accepts_calls=timeline)
        self._open_calls: dict[str, tuple[str, TimelineCall | None]] = {}

    @property
    def label_file(self) -> str:
        """The file that labels name."""
        return self.source or self.file

    def replay_call(self, event: Admitted | Refused) -> None:
        """Evaluate a recorded call."""
        index = self.calls
        self.calls += 1
        if event.at is None:
            self.untimed += 1
        if event.args is None:
            self.redacted_args += 1
        replay, baseline = self.replay, self.baseline
        decision = replay.replay_call(event, index)
        diverged = replay.first_divergence
        shown = None
        if baseline is not None:
            shown = self._replay_baseline(event, index, decision, baseline)
        elif self._timeline.accepts_calls:
            counterfactual = diverged is not None and diverged < index
            shown = TimelineCall(event, index, (decision,), counterfactual=counterfactual)
            self._timeline.add(shown, diverged=diverged is not None)
        open_calls = self._open_calls
        open_calls[event.call] = event.shown_tool, shown
        if len(open_calls) > _MAX_OPEN_CALLS:
            del open_calls[next(iter(open_calls))]

    def replay_result(self, event: Completed) -> None:
        """Record the result of a call."""
        recorded, redacted = event, False
        if event.result_fingerprint:
            fingerprinted = with_fingerprints(event)
            # An empty text counts as redacted only if the journal redacts other data.
            has_data = event.text or event.edited or self.redacted_args
            redacted = fingerprinted is not None and bool(has_data)
            self.redacted_results += redacted
            event = fingerprinted or event
        outcome = self.replay.replay_result(event, redacted=redacted)
        if self.baseline is not None:
            self.baseline.replay_result(event, redacted=redacted)
        tool, shown = self._open_calls.pop(event.call, ("", None))
        if event.provenance == "unknown":
            self.errors.unknown += 1
        elif event.ok is False:
            if event.provenance == "explicit":
                self.errors.explicit += 1
            else:
                self.errors.inferred += 1
        if not outcome.ok:
            if redacted:
                self.redacted_errors += 1
            else:
                self._count_error(outcome, tool)
        if shown is not None:
            shown.add_result(recorded, outcome)

    def add_candidate(self, event: CandidateDiffered) -> None:
        """Count how a candidate policy differed when the session was recorded."""
        was_refused = event.enforced in _REFUSING
        kind = "other effect"
        if event.refused is not was_refused:
            kind = "newly refused" if event.refused else "newly allowed"
        if event.counterfactual:
            kind = "counterfactual"
        self.candidates[kind] = self.candidates.get(kind, 0) + 1

    def replay_event(self, event: Event) -> None:
        """Apply an event that is neither a call nor a result."""
        for replay in self.replays:
            replay.replay_event(event)

    def touch(self, line: int) -> None:
        """Note an event of a descendant: while it is active, this session is not over."""
        run: Run | None = self
        while run is not None:
            run.last_seen = line
            run = run.parent

    def close(self) -> None:
        """Close the session at the end of its recording."""
        for replay in self.replays:
            replay.close()

    def figures(self) -> RunFigures:
        """Return the session's figures, without its timeline."""
        replay = self.replay
        return RunFigures(
            id=self.id,
            file=self.file,
            format=self.format,
            calls=self.calls,
            success=self.success,
            first_refusal=replay.first_refusal,
            refused=replay.refused,
            calls_after_first_refusal=replay.calls_after_refusal,
            first_rule=replay.first_rule,
            first_tool=replay.first_tool,
            first_message=replay.first_message,
            cost_after_first_refusal=replay.cost_after_refusal / SCALE,
            unknown=replay.unknown,
            untimed=self.untimed,
            advised=replay.effects.get("advise", 0),
            first_divergence=replay.first_divergence,
            baseline=self._baseline_figures(),
        )

    def timeline(self) -> list[CallFigures]:
        """Return the session's calls; only some of a long session."""
        return self._timeline.figures()

    def changed_figures(self, changed: ChangedDecision) -> ChangedCall:
        """Return a changed call as an example."""
        return ChangedCall(
            self.id,
            self.file,
            self.success,
            changed.call_index,
            changed.shown.figures(),
            changed.decision.rule,
            changed.decision.message,
        )

    @property
    def change(self) -> SessionChange:
        """How its refusals differ from the baseline's."""
        if self.baseline is None:
            return "same"
        now, before = self.replay, self.baseline
        for replay, other in ((now, before), (before, now)):
            if not replay.refused and replay.unknown and other.refused:
                return "unknown"
        if now.first_refusal == before.first_refusal:
            return "same"
        if now.first_refusal is None:
            return "newly_allowed"
        if before.first_refusal is None:
            return "newly_refused"
        return "earlier" if now.first_refusal < before.first_refusal else "later"

    def _count_error(self, outcome: Outcome, tool: str) -> None:
        """Count an error under its signature, or else under its kind."""
        if outcome.signature:
            count = self.signatures.get(outcome.signature, 0)
            self.signatures[outcome.signature] = count + 1
        else:
            found = UnmatchedFigures(excerpt(outcome.error), 1, tool, self.id, self.file)
            self.unmatched.add(
                outcome.error_fingerprint, (*self.order, self.unmatched.total), found
            )

    def _replay_baseline(
        self,
        event: Admitted | Refused,
        index: int,
        decision: ReplayDecision,
        baseline: SessionReplay,
    ) -> TimelineCall | None:
        """Evaluate a call under the baseline too, and note whether only one policy refuses it."""
        decisions = decision, baseline.replay_call(event, index)
        divergences = self.replay.first_divergence, baseline.first_divergence
        differ = decision.refused is not decisions[1].refused and UNKNOWN not in decisions
        if not differ and not self._timeline.accepts_calls:
            return None
        counterfactual = any(first is not None and first < index for first in divergences)
        shown = TimelineCall(event, index, decisions, counterfactual=counterfactual)
        if self._timeline.accepts_calls:
            self._timeline.add(shown, diverged=divergences != (None, None))
        if differ and decision.refused:
            self.newly_refused += 1
            self.first_refused = self.first_refused or ChangedDecision(shown, index, decision)
        elif differ:
            self.newly_allowed += 1
            self.first_allowed = self.first_allowed or ChangedDecision(shown, index, decisions[1])
        return shown

    def _baseline_figures(self) -> BaselineRunFigures | None:
        replay = self.baseline
        if replay is None:
            return None
        return BaselineRunFigures(
            change=self.change,
            refused=replay.refused,
            unknown=replay.unknown,
            first_refusal=replay.first_refusal,
            first_rule=replay.first_rule,
            first_message=replay.first_message,
        )
