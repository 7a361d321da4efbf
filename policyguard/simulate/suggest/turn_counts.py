"""The most calls in one turn of each session, as a fold over recordings."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from policyguard.model.event import Admitted, TurnStarted
from policyguard.simulate.jobs.job import Job, JobInputs
from policyguard.simulate.jobs.line_shard import LineShard
from policyguard.simulate.suggest.session_results import SessionKey
from policyguard.traces import Reader, Skipped, TraceFile
from policyguard.traces.session_trees import SessionTree


class TurnCounts:
    """The most calls in one turn, by session."""

    def __init__(self) -> None:
        self.events = 0
        self.maxima: dict[SessionKey, int] = {}

    def merge(self, other: TurnCounts) -> None:
        """Add the sessions of another part."""
        self.events += other.events
        self.maxima.update(other.maxima)


class TurnCountsFold:
    """A fold that counts the calls of turns."""

    def __init__(self, shard: LineShard, on_progress: Callable[[], None] = lambda: None) -> None:
        self._shard = shard
        self._on_progress = on_progress
        self._counts = TurnCounts()

    @property
    def events(self) -> int:
        """The number of events read."""
        return self._counts.events

    def add(
        self, trace: TraceFile, order: tuple[int, int] | None = None, *, whole: bool = False
    ) -> None:
        """Count the calls of a file."""
        file, member = order or (0, 0)
        self._shard.begin(whole=whole)
        maxima = self._counts.maxima
        in_turn: dict[str, int] = {}
        for item in trace:
            if isinstance(item, Skipped):
                continue
            self._counts.events += 1
            if isinstance(item, TurnStarted):
                in_turn[item.session] = 0
            elif isinstance(item, Admitted):
                count = in_turn[item.session] = in_turn.get(item.session, 0) + 1
                key = file, member, item.session
                maxima[key] = max(maxima.get(key, 0), count)
        self._on_progress()

    def add_tree(self, reader: Reader, files: Sequence[Path], tree: SessionTree) -> None:
        """Count the calls of the files of a session tree."""
        for index in tree.indices:
            for member, trace in enumerate(reader.iter_files(files[index])):
                self.add(trace, (index, member), whole=True)

    def stop(self) -> TurnCounts:
        """Return the counts."""
        return self._counts


def start_turn_counts(
    job: Job, inputs: JobInputs | None, shard: LineShard, on_progress: Callable[[], None]
) -> TurnCountsFold:
    """Start to count the calls of a shard."""
    return TurnCountsFold(shard, on_progress)
