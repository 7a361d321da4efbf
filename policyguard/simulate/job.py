"""A replay of many files, by one process or several: the same report byte for byte."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol

import msgspec

from policyguard.compiler import CompiledPolicy
from policyguard.report.replay.figures import Figures
from policyguard.simulate.labels import Labels
from policyguard.simulate.line_shard import LineShard
from policyguard.simulate.replay import Replay, load
from policyguard.simulate.sampling import SessionSample
from policyguard.simulate.tally import ReportSize, Tally
from policyguard.traces import Reader
from policyguard.traces.containers.row_filter import Rows
from policyguard.traces.session_trees import SessionTree, find_session_trees


class Job(msgspec.Struct, frozen=True, kw_only=True):
    """A description of a replay in plain values, which can be sent to another process.

    `policies` and `baseline` are as `load` takes them; an empty `baseline` means none. `where`
    selects rows of Parquet files and folders (see `row_filter`), `columns` says what the columns
    of other schemas are (see `parse_columns`), `sample` is the share of sessions to replay.
    """

    policies: tuple[str, ...]
    baseline: tuple[str, ...] = ()
    observe: bool = False
    labels: Path | None = None
    files: tuple[Path, ...] = ()
    report_size: ReportSize = ReportSize()
    where: str = ""
    columns: str = ""
    sample: float | None = None

    def read_rows(self) -> Rows:
        """Return which rows are read. Raises `TraceError`."""
        from policyguard.traces.where import read_rows  # needs the parser of CEL

        return read_rows(self.where, self.columns)


class JobInputs(msgspec.Struct, frozen=True):
    """The compiled policies and the labels of a job."""

    policy: CompiledPolicy
    baseline: CompiledPolicy | None
    labels: Labels | None

    @classmethod
    def load(cls, job: Job) -> JobInputs:
        """Load a job's inputs. Raises `PolicyError`, `LabelError`."""
        return cls(
            load(job.policies),
            load(job.baseline) if job.baseline else None,
            Labels.read(job.labels) if job.labels is not None else None,
        )


class StoppedError(Exception):
    """A request to stop; everything read so far is counted."""


class ProgressCallback(Protocol):
    """A callback for the progress of a replay, which may stop it."""

    def __call__(self, done: int, events: int) -> None:
        """Report how many more bytes and events were read. Raises `StoppedError` to stop."""
        ...


class ReplayWorker:
    """The part of a job that one process replays.

    `is_assigned` takes the index of a file; the files of one tree go to the same worker. `trees`
    are the job's files by session tree, by default found here.
    """

    def __init__(
        self,
        job: Job,
        inputs: JobInputs,
        shard: LineShard,
        is_assigned: Callable[[int], bool],
        on_progress: ProgressCallback,
        trees: Sequence[SessionTree] | None = None,
    ) -> None:
        self._job = job
        self._is_assigned = is_assigned
        self._trees = trees
        self._shard = shard
        self._on_progress = on_progress
        self._file_bytes = self._reported_bytes = self._reported_events = 0
        self._replay = Replay(
            inputs.policy,
            observe=job.observe,
            labels=inputs.labels,
            baseline=inputs.baseline,
            report_size=job.report_size,
            on_progress=self._report_progress,
            shard=shard,
            sample=None if job.sample is None else SessionSample(job.sample),
        )

    def run(self) -> tuple[Tally, bool]:
        """Replay the assigned files. Return their tally, and whether it is partial."""
        rows = self._job.read_rows()
        reader = Reader(self._shard, rows)
        try:
            trees = self._trees
            if trees is None:
                trees = find_session_trees(self._job.files, self._report_progress, rows)
            for tree in trees:
                if self._is_assigned(tree.indices[0]):
                    self._replay_tree(reader, tree)
        except StoppedError:
            return self._replay.stop(), True
        return self._replay.stop(), False

    def _replay_tree(self, reader: Reader, tree: SessionTree) -> None:
        files, before = self._job.files, self._shard.bytes_read
        index, *others = tree.indices
        if others:
            self._replay.add_tree(reader, files, tree)
            self._report_progress()
        else:
            for member, trace in enumerate(reader.iter_files(files[index])):
                self._replay.add(trace, (index, member))
                self._report_progress()
        if self._shard.bytes_read == before:
            self._file_bytes += sum(file_size(files[index]) for index in tree.indices)

    def _report_progress(self) -> None:
        done, events = self._file_bytes + self._shard.bytes_read, self._replay.events
        new_bytes, new_events = done - self._reported_bytes, events - self._reported_events
        self._reported_bytes, self._reported_events = done, events
        self._on_progress(new_bytes, new_events)


def run_job(job: Job, inputs: JobInputs, on_progress: ProgressCallback) -> Figures:
    """Replay a job in this process."""
    tally, partial = ReplayWorker(job, inputs, LineShard(), lambda index: True, on_progress).run()
    return build_report(job, inputs, [tally], partial=partial)


def build_report(
    job: Job, inputs: JobInputs, tallies: Sequence[Tally], *, partial: bool
) -> Figures:
    """Merge the tallies of a job's parts into its report."""
    compiled = [inputs.policy, *filter(None, [inputs.baseline])]
    figures = merge(*tallies).build_figures(compiled, inputs.labels, partial=partial)
    figures.traces.named_files = len(job.files)
    figures.traces.sample = job.sample
    return figures


def merge(first: Tally, *others: Tally) -> Tally:
    """Add tallies to the first one, in their order, and return it."""
    for tally in others:
        first.merge(tally)
    return first


def file_size(file: Path) -> int:
    """Return the size of a file in bytes, 0 if it is unknown."""
    try:
        return file.stat().st_size
    except OSError:
        return 0
