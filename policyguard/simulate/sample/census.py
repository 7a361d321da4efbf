"""The pass before a sample: which strata a recording has, without a replay."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from policyguard.model.event import Event, SessionEnded, SessionStarted
from policyguard.simulate.jobs.job import Job, JobInputs
from policyguard.simulate.jobs.line_shard import LineShard
from policyguard.simulate.labels import Labels
from policyguard.simulate.sample.sampling import SessionNumbers
from policyguard.simulate.sample.strata import Strata
from policyguard.traces import Item, Reader, Skipped, TraceFile
from policyguard.traces.interleaving import FileEnded, InterleavedFiles
from policyguard.traces.session_trees import SessionTree

_MAX_OPEN = 100_000
"""Sessions that are not over; beyond it the oldest counts as over."""
_PROGRESS_INTERVAL = 1024
"""Items between two calls of `on_progress`."""


class _Root:
    """The first session of a tree. `waits`: for the end of its file, as a label may name that."""

    def __init__(self, event: Event, number: int, path: Path) -> None:
        started = event if isinstance(event, SessionStarted) else SessionStarted(event.session)
        self.id = started.session
        self.agent = started.agent
        self.number = number
        self.source = started.source
        self.file = started.source or str(path)
        self.success: bool | None = None
        self.waits = False


class Census:
    """A fold that counts session trees by agent and outcome, which a label overrides."""

    def __init__(
        self, labels: Labels | None, shard: LineShard, on_progress: Callable[[], None]
    ) -> None:
        self._labels = labels
        self._shard = shard
        self._on_progress = on_progress
        self._number = SessionNumbers()
        self._strata = Strata()
        self._open: dict[str, _Root] = {}  # the root of each open session
        self._first: list[_Root] = []  # of their files: each may turn out to be the only one
        self._counts: Counter[str] = Counter()  # sessions by file
        self.events = 0

    def add(
        self, trace: TraceFile, order: tuple[int, int] | None = None, *, whole: bool = False
    ) -> None:
        """Count the session trees of a file."""
        by_source = self._labels is not None and self._labels.has_file_labels
        self._shard.begin(whole=whole, by_source=by_source)
        self._number.begin(str(trace.path))
        self._add(trace, lambda: trace.path)

    def add_tree(self, reader: Reader, files: Sequence[Path], tree: SessionTree) -> None:
        """Count the session tree of several files."""
        self._shard.begin(whole=True)
        self._number.begin(str(files[tree.indices[0]]))
        items = InterleavedFiles(reader, files, tree)
        self._add(items, lambda: items.trace.path)

    def stop(self) -> Strata:
        """Return the strata."""
        self._strata.events = self.events
        return self._strata

    def _add(self, items: Iterable[Item], path: Callable[[], Path]) -> None:
        self._first.clear()
        self._counts.clear()
        for item in items:
            if isinstance(item, Skipped):
                continue
            self.events += 1
            if not self.events % _PROGRESS_INTERVAL:
                self._on_progress()
            root = self._open.get(item.session)
            if root is None:
                root = self._begin(item, path())
            if isinstance(item, SessionEnded):
                self.events -= item.__class__ is FileEnded
                self._number(item)
                del self._open[item.session]
                if root.id == item.session:
                    root.success = root.success if item.success is None else item.success
                    self._end(root)
        for session, root in self._open.items():
            if session == root.id:
                self._end(root)
        self._open.clear()
        for root in self._first:
            several = self._counts[root.file] > 1 or self._shard.has_several_sessions(root.source)
            self._add_tree_of(root, only_session=not several)

    def _begin(self, event: Event, path: Path) -> _Root:
        parent = event.parent if isinstance(event, SessionStarted) else ""
        number = self._number(event)
        root = self._open.get(parent) if parent else None
        if root is None:
            root = _Root(event, number, path)
        if self._labels is not None and self._labels.has_file_labels:
            file = (event.source if isinstance(event, SessionStarted) else "") or str(path)
            self._counts[file] += 1
            if root.id == event.session and self._counts[file] == 1:
                root.waits = self._labels.may_name(file)
                self._first += [root] if root.waits else []
        self._open[event.session] = root
        if len(self._open) > _MAX_OPEN:
            session = next(iter(self._open))
            oldest = self._open.pop(session)
            if oldest.id == session:
                self._end(oldest)
        return root

    def _end(self, root: _Root) -> None:
        if not root.waits:
            self._add_tree_of(root, only_session=False)

    def _add_tree_of(self, root: _Root, *, only_session: bool) -> None:
        success = root.success
        if self._labels is not None:
            _, labelled = self._labels.find(root.id, root.file, only_session=only_session)
            success = success if labelled is None else labelled
        self._strata.add(root.agent, success, root.number)


def start_census(
    job: Job, inputs: JobInputs | None, shard: LineShard, on_progress: Callable[[], None]
) -> Census:
    """Start to count the sessions of a shard; no policy is needed."""
    if inputs is not None:
        labels = inputs.labels
    else:
        labels = Labels.read(job.labels) if job.labels is not None else None
    return Census(labels, shard, on_progress)
