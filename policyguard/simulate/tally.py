"""Counts over the sessions of a replay. The tallies of its parts add up to that of the whole."""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Generic, TypeVar

import msgspec

from policyguard.compiler import CompiledPolicy
from policyguard.report.replay.figures import (
    BaselineFigures,
    CallFigures,
    ChangedCall,
    DirectionFigures,
    Figures,
    LabelFigures,
    PolicyFigures,
    RunFigures,
    SessionChange,
    Share,
    SignatureCoverage,
    SignatureFigures,
    SkippedFigures,
    TraceFigures,
    UnfiredEntry,
)
from policyguard.simulate.entry_sources import add_sources
from policyguard.simulate.labels import Labels
from policyguard.simulate.policy_tally import PolicyTally, ShareOf
from policyguard.simulate.sample.proportions import share
from policyguard.simulate.sample.sample_counts import (
    ERRORS,
    MATCHED,
    SESSIONS,
    UNLABELLED,
    Key,
    SampleCounts,
)
from policyguard.simulate.sample.sampling import Draw
from policyguard.simulate.sessions.error_kinds import ErrorKinds, ReadOrder
from policyguard.simulate.sessions.run import ChangedDecision, Run
from policyguard.simulate.unfired import find_unfired
from policyguard.traces.stats import add_numbers

_MAX_SKIPS = 100
"""Skipped items that a report names, the first ones."""
_MAX_UNMATCHED = 20
"""Kinds of unmatched errors that a report shows."""

_T = TypeVar("_T")
_RankKey = tuple[int, ...]
"""Lower keys rank higher."""


class ReportSize(msgspec.Struct, frozen=True):
    """How many sessions, timelines and examples (in each direction) a report holds."""

    sessions: int = 1000
    timelines: int = 20
    examples: int = 10


class Tally:
    """Counts, and the sessions that rank first. Its size does not grow with the trace.

    `own_entries` are the policy's own entries, `used_tools` the tools they name that were called.
    `draw` is that of a sample; then shares are estimates for all that it was drawn from.
    """

    def __init__(
        self,
        policies: Sequence[PolicyFigures],
        report_size: ReportSize,
        own_entries: list[UnfiredEntry],
        draw: Draw | None = None,
    ) -> None:
        self.traces = TraceFigures()
        self.labels = LabelFigures()
        self.matched_labels: set[int] = set()
        self.used_tools: set[str] = set()
        self._own_entries = own_entries
        self._policies = [PolicyTally(policy, index) for index, policy in enumerate(policies)]
        self._sample = None if draw is None else SampleCounts(draw)
        self._with_calls = self._unlabelled = 0
        self._sessions: TopN[RunFigures] = TopN(report_size.sessions)
        self._timelines: TopN[list[CallFigures]] = TopN(
            min(report_size.timelines, report_size.sessions)
        )
        self._skips: TopN[SkippedFigures] = TopN(_MAX_SKIPS)
        self._signatures: Counter[str] = Counter()
        self._signature_sessions: Counter[str] = Counter()
        self._redacted_errors = 0
        self._unmatched = ErrorKinds()
        self._changes: Counter[str] = Counter()
        self._refused = _ChangeTally("newly_refused", report_size.examples)
        self._allowed = _ChangeTally("newly_allowed", report_size.examples)

    @property
    def events(self) -> int:
        """The number of events read."""
        return self.traces.events

    def skip(self, order: ReadOrder, skipped: SkippedFigures) -> None:
        """Count something that was skipped."""
        self.traces.skipped += 1
        self._skips.offer(order, lambda: skipped)

    def add(self, run: Run) -> None:
        """Count a session that is over, with its final outcome."""
        traces = self.traces
        traces.sessions += 1
        traces.without_calls += not run.calls
        traces.orphans += run.is_orphan
        for kind, calls in run.candidates.items():
            traces.candidates[kind] = traces.candidates.get(kind, 0) + calls
        traces.calls += run.calls
        traces.untimed += run.untimed
        traces.unknown += run.replay.unknown
        traces.redacted.args += run.redacted_args
        traces.redacted.results += run.redacted_results
        traces.errors.explicit += run.errors.explicit
        traces.errors.inferred += run.errors.inferred
        traces.errors.unknown += run.errors.unknown
        for policy, replay in zip(self._policies, run.replays, strict=True):
            policy.add(replay, run.success, order=run.order, calls=run.calls)
        self._redacted_errors += run.redacted_errors
        self._signatures.update(run.signatures)
        self._signature_sessions.update(run.signatures.keys())
        self._unmatched.merge(run.unmatched)
        if run.calls:
            self._with_calls += 1
            self._unlabelled += run.success is None
            if run.baseline is not None:
                self._changes[run.change] += 1
                self._refused.add(run, run.newly_refused, run.first_refused)
                self._allowed.add(run, run.newly_allowed, run.first_allowed)
        if self._sample is not None:
            self._sample.add(run)
        key = (_rank(run), *run.order)
        self._sessions.offer(key, run.figures)
        self._timelines.offer(key, run.timeline)

    def merge(self, other: Tally) -> None:
        """Add the counts of another part of the replay."""
        add_numbers(self.traces, other.traces)
        add_numbers(self.labels, other.labels)
        self.matched_labels |= other.matched_labels
        self.used_tools |= other.used_tools
        for policy, same in zip(self._policies, other._policies, strict=True):
            policy.merge(same)
        if self._sample is not None and other._sample is not None:
            self._sample.merge(other._sample)
        self._with_calls += other._with_calls
        self._unlabelled += other._unlabelled
        self._sessions.merge(other._sessions)
        self._timelines.merge(other._timelines)
        self._skips.merge(other._skips)
        self._signatures.update(other._signatures)
        self._signature_sessions.update(other._signature_sessions)
        self._redacted_errors += other._redacted_errors
        self._unmatched.merge(other._unmatched)
        self._changes.update(other._changes)
        self._refused.merge(other._refused)
        self._allowed.merge(other._allowed)

    def build_figures(
        self, compiled: Sequence[CompiledPolicy], labels: Labels | None, *, partial: bool
    ) -> Figures:
        """Return the figures of the report. `compiled`: the policy, and the baseline if any."""
        total = self._with_calls
        first, *others = self._policies
        traces = msgspec.structs.replace(
            self.traces,
            formats=dict(sorted(self.traces.formats.items())),
            candidates=dict(sorted(self.traces.candidates.items())),
            skips=[skip for _, skip in self._skips.items()],
            unlabelled=self._share(self._unlabelled, total, UNLABELLED, SESSIONS),
            strata=[] if self._sample is None else self._sample.figures(),
        )
        if labels is not None:
            self.labels.matched = len(self.matched_labels)
            self.labels.unmatched = len(labels) - len(self.matched_labels)
        figures = Figures(
            policy=first.policy,
            traces=traces,
            effects=first.effects(),
            rules=first.rules(total, self._share),
            eval_errors=first.eval_errors(),
            sessions=self._list_sessions(),
            left_out=self._sessions.left_out,
            refused=first.refused(total, self._share),
            undecided=first.undecided(total, self._share),
            harm=first.harm(self._share),
            catch=first.catch(self._share),
            labels=self.labels,
            signatures=self._signature_coverage(),
            unfired=list(find_unfired(self._own_entries, first.fired_entries(), self.used_tools)),
            partial=partial,
        )
        for policy in others:
            figures.baseline = BaselineFigures(
                policy=policy.policy,
                effects=policy.effects(),
                rules=policy.rules(total, self._share),
                eval_errors=policy.eval_errors(),
                refused=policy.refused(total, self._share),
                harm=policy.harm(self._share),
                catch=policy.catch(self._share),
                newly_refused=self._refused.figures(total, self._share),
                newly_allowed=self._allowed.figures(total, self._share),
                earlier=self._changes["earlier"],
                later=self._changes["later"],
                unknown=self._changes["unknown"],
            )
            add_sources(figures.baseline.rules, compiled[1])
        add_sources(figures.rules, compiled[0])
        return figures

    def _share(self, count: int, total: int, hits: Key, trials: Key) -> Share:
        if self._sample is None:
            return share(count, total)
        return self._sample.share(count, total, hits, trials)

    def _list_sessions(self) -> list[RunFigures]:
        """Return the kept sessions in the order read, some with timelines."""
        timelines = dict(self._timelines.items())
        listed = [
            (key[1:], msgspec.structs.replace(run, timeline=timelines.get(key, [])))
            for key, run in self._sessions.items()
        ]
        return [run for _, run in sorted(listed, key=lambda pair: pair[0])]

    def _signature_coverage(self) -> SignatureCoverage:
        matched = sum(self._signatures.values())
        unmatched = self._unmatched.total
        ranked = sorted(self._signatures.items(), key=lambda item: (-item[1], item[0]))
        return SignatureCoverage(
            matched=self._share(matched, matched + unmatched, MATCHED, ERRORS),
            redacted=self._redacted_errors,
            signatures=[
                SignatureFigures(name, hits, self._signature_sessions[name])
                for name, hits in ranked
            ],
            kinds=len(self._unmatched),
            unmatched=list(self._unmatched.most_frequent(_MAX_UNMATCHED)),
        )


class _ChangeTally:
    """Counts of sessions and calls that are newly refused, or newly allowed."""

    def __init__(self, change: SessionChange, examples: int) -> None:
        self._change = change
        self._figures = DirectionFigures()
        self._sessions = 0
        self._examples: TopN[ChangedCall] = TopN(examples)

    def add(self, run: Run, calls: int, first: ChangedDecision | None) -> None:
        self._figures.calls += calls
        if run.change == self._change:
            self._sessions += 1
            self._figures.succeeded += run.success is True
            self._figures.failed += run.success is False
        if first is not None:
            key = (0 if run.success else 1, 0 if run.change == self._change else 1, *run.order)
            self._examples.offer(key, lambda: run.changed_figures(first))

    def merge(self, other: _ChangeTally) -> None:
        self._sessions += other._sessions
        add_numbers(self._figures, other._figures)
        self._examples.merge(other._examples)

    def figures(self, total: int, share_of: ShareOf) -> DirectionFigures:
        return msgspec.structs.replace(
            self._figures,
            sessions=share_of(self._sessions, total, (self._change,), SESSIONS),
            examples=[example for _, example in self._examples.items()],
        )


def _rank(run: Run) -> int:
    """Return the rank of a session in the report: harm, then changes, then refusals."""
    refused = run.replay.refused
    if refused and run.success:
        return 0
    if run.change != "same":
        return 1
    if refused:
        return 2
    return 3 if run.replay.unknown else 4


class TopN(Generic[_T]):
    """The `max_items` items with the lowest keys, in whatever order they are offered."""

    def __init__(self, max_items: int) -> None:
        self._max_items = max_items
        # The top of the heap is the highest key, the next to drop. The number breaks ties, so that
        # items are never compared.
        self._heap: list[tuple[_RankKey, int, Any]] = []
        self._offered = 0
        self.left_out = 0

    def offer(self, key: _RankKey, make: Callable[[], _T]) -> None:
        """Keep the item that `make` returns, if its key is among the lowest so far."""
        negated = tuple(-part for part in key)
        self._offered += 1
        if len(self._heap) < self._max_items:
            heapq.heappush(self._heap, (negated, -self._offered, make()))
            return
        self.left_out += 1
        if self._heap and negated > self._heap[0][0]:
            heapq.heapreplace(self._heap, (negated, -self._offered, make()))

    def merge(self, other: TopN[_T]) -> None:
        """Merge the items of another, as if all had been offered to this one."""
        for negated, _, item in sorted(other._heap, key=lambda entry: entry[:2], reverse=True):
            self.offer(tuple(-part for part in negated), lambda item=item: item)  # type: ignore[misc]  # mypy cannot infer a lambda with a default
        self.left_out += other.left_out

    def items(self) -> Iterator[tuple[_RankKey, _T]]:
        """Return the kept items with their keys, lowest first."""
        for negated, _, item in sorted(self._heap, key=lambda entry: entry[:2], reverse=True):
            yield tuple(-part for part in negated), item
