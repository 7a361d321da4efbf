"""Counts of a sample by stratum, from which shares of the whole recording are estimated."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterator

from policyguard.report.replay.figures import Share, StratumFigures
from policyguard.simulate.sample.proportions import StratumSample, estimate_share
from policyguard.simulate.sample.sampling import Draw
from policyguard.simulate.sample.strata import Stratum, find_stratum
from policyguard.simulate.sessions.run import Run

Key = tuple[Hashable, ...]
"""What is counted. Those of a policy end in its index: 0, or 1 for the baseline."""

SESSIONS: Key = ("sessions with a call",)
UNLABELLED: Key = ("unlabelled",)
ERRORS: Key = ("errors",)
MATCHED: Key = ("matched errors",)


class _StratumCounts:
    """The session trees that were drawn of a stratum, and the sums of their counts and squares."""

    def __init__(self) -> None:
        self.trees = 0
        self.sums: Counter[Key] = Counter()
        self.squares: Counter[Key] = Counter()

    def add(self, counts: Counter[Key]) -> None:
        self.sums.update(counts)
        self.squares.update({key: count * count for key, count in counts.items()})

    def merge(self, other: _StratumCounts) -> None:
        self.trees += other.trees
        self.sums.update(other.sums)
        self.squares.update(other.squares)


class SampleCounts:
    """Counts of the drawn session trees by stratum.

    What a sub-agent adds counts with its parent's when that is over, whose stratum is known then.
    """

    def __init__(self, draw: Draw) -> None:
        self._agents = draw.agents
        self._sizes = dict(draw.sizes)
        self._strata: dict[Stratum, _StratumCounts] = {}

    def add(self, run: Run) -> None:
        """Count a session that is over, with its final outcome."""
        root = run.root
        root.tree_counts.update(_count(run))
        if run is root:
            root.is_counted = True
        if root.is_counted:
            stratum = self._stratum(find_stratum(self._agents, root.agent, root.success))
            stratum.trees += run is root
            stratum.add(root.tree_counts)
            root.tree_counts.clear()

    def merge(self, other: SampleCounts) -> None:
        """Add the counts of another part of the sample."""
        for stratum, counts in other._strata.items():
            self._stratum(stratum).merge(counts)

    def share(self, count: int, total: int, hits: Key, trials: Key) -> Share:
        """Return counts of the sample, with the share of the whole that they let expect."""
        found = estimate_share(
            [
                StratumSample(
                    max(counts.trees, self._sizes.get(stratum, 0)),
                    counts.trees,
                    counts.sums[hits],
                    counts.sums[trials],
                    counts.squares[trials],
                )
                for stratum, counts in self._sorted()
                if counts.trees
            ]
        )
        return Share(count, total) if found is None else Share(count, total, *found)

    def figures(self) -> list[StratumFigures]:
        """Return the strata, with how many of their sessions were drawn."""
        return [
            StratumFigures(
                agent, success, size, counts.trees if (counts := self._strata.get(stratum)) else 0
            )
            for stratum, size in self._sizes.items()
            for agent, success in [stratum]
        ]

    def _stratum(self, stratum: Stratum) -> _StratumCounts:
        return self._strata.setdefault(stratum, _StratumCounts())

    def _sorted(self) -> Iterator[tuple[Stratum, _StratumCounts]]:
        """Yield the strata in one order, for sums of floats depend on it."""
        return iter(sorted(self._strata.items(), key=lambda item: item[0].sort_key))


def _count(run: Run) -> Counter[Key]:
    counts: Counter[Key] = Counter()
    matched = sum(run.signatures.values())
    counts[MATCHED], counts[ERRORS] = matched, matched + run.unmatched.total
    for index, replay in enumerate(run.replays):
        counts.update((*fired, index) for fired in replay.hits)
    if not run.calls:
        return counts
    counts[SESSIONS] = 1
    counts[UNLABELLED] = run.success is None
    if run.baseline is not None:
        counts[run.change,] = 1
    for index, replay in enumerate(run.replays):
        outcome = "refused" if replay.refused else "undecided" if replay.unknown else "untouched"
        counts[outcome, index] = 1
        counts["decided", index] = outcome != "undecided"
        counts[outcome, run.success, index] = 1
        counts["decided", run.success, index] = outcome != "undecided"
    return counts
