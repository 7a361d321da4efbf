"""What the sessions of a replay amount to. Tallies of parts of a replay add up to that of all."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import msgspec

from policyguard.report.figures import (
    Baseline,
    CallFigures,
    ChangedCall,
    Coverage,
    Difference,
    Figures,
    LabelFigures,
    PolicyFigures,
    RunFigures,
    SignatureFigures,
    SilentFigures,
    SkippedFigures,
    TraceFigures,
)
from policyguard.simulate.errors import ErrorKinds, Order
from policyguard.simulate.kept import Kept
from policyguard.simulate.labels import Labels
from policyguard.simulate.policy_tally import PolicyTally
from policyguard.simulate.proportions import share
from policyguard.simulate.run import Differing, Run
from policyguard.simulate.silent import silent

_SKIPS = 100
"""Places that were passed over, of which the first are named."""
_UNMATCHED = 20
"""Kinds of unmatched errors that are shown."""


class Keep(msgspec.Struct, frozen=True):
    """How many sessions, timelines and examples (in each direction) a report holds."""

    sessions: int = 1000
    timelines: int = 20
    examples: int = 10


class Tally:
    """Counts, and of the sessions those that matter most. Its size does not grow with the trace.

    `own` are the policy's own entries, `met` those of the tools that they name that had a call.
    """

    def __init__(
        self, policies: Sequence[PolicyFigures], keep: Keep, own: list[SilentFigures]
    ) -> None:
        self.traces = TraceFigures()
        self.labels = LabelFigures()
        self.matched: set[int] = set()
        self.met: set[str] = set()
        self._own = own
        self._sides = [PolicyTally(policy) for policy in policies]
        self._with_calls = self._unlabelled = 0
        self._sessions: Kept[RunFigures] = Kept(keep.sessions)
        self._timelines: Kept[list[CallFigures]] = Kept(min(keep.timelines, keep.sessions))
        self._skips: Kept[SkippedFigures] = Kept(_SKIPS)
        self._signatures: Counter[str] = Counter()
        self._signature_sessions: Counter[str] = Counter()
        self._hidden_errors = 0
        self._unmatched = ErrorKinds()
        self._changes: Counter[str] = Counter()
        self._refused = _Direction(keep.examples)
        self._allowed = _Direction(keep.examples)

    def skip(self, order: Order, skipped: SkippedFigures) -> None:
        """Count something that was passed over."""
        self.traces.skipped += 1
        self._skips.offer(order, lambda: skipped)

    def add(self, run: Run) -> None:
        """Count a session whose outcome is known, if it ever will be."""
        traces = self.traces
        traces.sessions += 1
        traces.without_calls += not run.calls
        traces.orphans += run.orphan
        traces.calls += run.calls
        traces.untimed += run.untimed
        traces.unknown += run.course.unknown
        traces.hidden.args += run.hidden_args
        traces.hidden.results += run.hidden_results
        traces.errors.explicit += run.errors.explicit
        traces.errors.inferred += run.errors.inferred
        traces.errors.unknown += run.errors.unknown
        for side, course in zip(self._sides, run.courses, strict=True):
            side.add(course, run.success, order=run.order, calls=run.calls)
        self._hidden_errors += run.hidden_errors
        self._signatures.update(run.signatures)
        self._signature_sessions.update(run.signatures.keys())
        self._unmatched.merge(run.unmatched)
        if run.calls:
            self._with_calls += 1
            self._unlabelled += run.success is None
            if run.baseline is not None:
                self._changes[run.change] += 1
                self._refused.add(run, run.newly_refused, run.first_refused, "newly_refused")
                self._allowed.add(run, run.newly_allowed, run.first_allowed, "newly_allowed")
        key = (_rank(run), *run.order)
        self._sessions.offer(key, run.figures)
        self._timelines.offer(key, run.timeline)

    def merge(self, other: Tally) -> None:
        """Count what another has counted of the same replay."""
        _add(self.traces, other.traces)
        _add(self.labels, other.labels)
        self.matched |= other.matched
        self.met |= other.met
        for side, same in zip(self._sides, other._sides, strict=True):
            side.merge(same)
        self._with_calls += other._with_calls
        self._unlabelled += other._unlabelled
        self._sessions.merge(other._sessions)
        self._timelines.merge(other._timelines)
        self._skips.merge(other._skips)
        self._signatures.update(other._signatures)
        self._signature_sessions.update(other._signature_sessions)
        self._hidden_errors += other._hidden_errors
        self._unmatched.merge(other._unmatched)
        self._changes.update(other._changes)
        self._refused.merge(other._refused)
        self._allowed.merge(other._allowed)

    def conclude(self, labels: Labels | None, *, partial: bool) -> Figures:
        """The report."""
        of = self._with_calls
        first, *others = self._sides
        traces = msgspec.structs.replace(
            self.traces,
            formats=dict(sorted(self.traces.formats.items())),
            skips=[skip for _, skip in self._skips.items()],
            unlabelled=share(self._unlabelled, of),
        )
        if labels is not None:
            self.labels.matched = len(self.matched)
            self.labels.unmatched = len(labels) - len(self.matched)
        figures = Figures(
            policy=first.policy,
            traces=traces,
            effects=first.effects(),
            rules=first.rules(of),
            faults=first.faults(),
            sessions=self._listed(),
            left_out=self._sessions.left_out,
            refused=first.refused(of),
            undecided=first.undecided(of),
            harm=first.harm(),
            catch=first.catch(),
            labels=self.labels,
            signatures=self._coverage(),
            silent=list(silent(self._own, first.spoke(), self.met)),
            partial=partial,
        )
        for side in others:
            figures.baseline = Baseline(
                policy=side.policy,
                effects=side.effects(),
                rules=side.rules(of),
                faults=side.faults(),
                refused=side.refused(of),
                harm=side.harm(),
                catch=side.catch(),
                newly_refused=self._refused.figures(of),
                newly_allowed=self._allowed.figures(of),
                earlier=self._changes["earlier"],
                later=self._changes["later"],
                unknown=self._changes["unknown"],
            )
        return figures

    def _listed(self) -> list[RunFigures]:
        """The sessions that are kept, in the order read, some with their timelines."""
        timelines = dict(self._timelines.items())
        listed = [
            (key[1:], msgspec.structs.replace(run, timeline=timelines.get(key, [])))
            for key, run in self._sessions.items()
        ]
        return [run for _, run in sorted(listed, key=lambda pair: pair[0])]

    def _coverage(self) -> Coverage:
        known = sum(self._signatures.values())
        unmatched = self._unmatched.total
        ranked = sorted(self._signatures.items(), key=lambda item: (-item[1], item[0]))
        return Coverage(
            matched=share(known, known + unmatched),
            hidden=self._hidden_errors,
            signatures=[
                SignatureFigures(name, hits, self._signature_sessions[name])
                for name, hits in ranked
            ],
            kinds=len(self._unmatched),
            unmatched=list(self._unmatched.most_frequent(_UNMATCHED)),
        )


class _Direction:
    """What is newly refused, or newly allowed."""

    def __init__(self, examples: int) -> None:
        self._difference = Difference()
        self._sessions = 0
        self._examples: Kept[ChangedCall] = Kept(examples)

    def add(self, run: Run, calls: int, first: Differing | None, change: str) -> None:
        self._difference.calls += calls
        if run.change == change:
            self._sessions += 1
            self._difference.succeeded += run.success is True
            self._difference.failed += run.success is False
        if first is not None:
            key = (0 if run.success else 1, 0 if run.change == change else 1, *run.order)
            self._examples.offer(key, lambda: run.changed(first))

    def merge(self, other: _Direction) -> None:
        self._sessions += other._sessions
        _add(self._difference, other._difference)
        self._examples.merge(other._examples)

    def figures(self, of: int) -> Difference:
        return msgspec.structs.replace(
            self._difference,
            sessions=share(self._sessions, of),
            examples=[example for _, example in self._examples.items()],
        )


def _rank(run: Run) -> int:
    """What a reader wants to see first: harm, then what has changed, then what is refused."""
    refused = run.course.refused
    if refused and run.success:
        return 0
    if run.change != "same":
        return 1
    if refused:
        return 2
    return 3 if run.course.unknown else 4


def _add(mine: msgspec.Struct, other: msgspec.Struct) -> None:
    """Add up all numbers, also those further inside."""
    for name in mine.__struct_fields__:
        value, more = getattr(mine, name), getattr(other, name)
        if isinstance(value, msgspec.Struct):
            _add(value, more)
        elif isinstance(value, dict):
            for key, count in more.items():
                value[key] = value.get(key, 0) + count
        elif isinstance(value, int):
            setattr(mine, name, value + more)
