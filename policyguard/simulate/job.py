"""A replay of many files, by one process or by several: the same report to the byte."""

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
from policyguard.simulate.tally import ReportSize, Tally
from policyguard.traces import Reader
from policyguard.traces.session_trees import SessionTree, find_session_trees


class Job(msgspec.Struct, frozen=True, kw_only=True):
    """What is to be replayed: plain values, so that it can be handed to another process.

    `policies` and `baseline` are as `load` takes them; no baseline where it is empty.
    """

    policies: tuple[str, ...]
    baseline: tuple[str, ...] = ()
    observe: bool = False
    labels: Path | None = None
    files: tuple[Path, ...] = ()
    report_size: ReportSize = ReportSize()


class JobInputs(msgspec.Struct, frozen=True):
    """What a job's policies and labels are once they are read."""

    policy: CompiledPolicy
    baseline: CompiledPolicy | None
    labels: Labels | None

    @classmethod
    def load(cls, job: Job) -> JobInputs:
        """Read them. Raises `PolicyError`, `LabelError`."""
        return cls(
            load(job.policies),
            load(job.baseline) if job.baseline else None,
            Labels.read(job.labels) if job.labels is not None else None,
        )


class StoppedError(Exception):
    """Somebody has asked to stop; what was read until then is counted."""


class ProgressCallback(Protocol):
    """Whoever watches a replay, and may stop it."""

    def __call__(self, done: int, events: int) -> None:
        """So many bytes and events more have been read. Raises `StoppedError` to stop."""
        ...


class ReplayWorker:
    """One process's walk through its share of a job's files.

    `mine` says which files (by their place in the job) are to be read here: of a family all, or
    none. `kin` are the job's files by family, which are found out where they are not given.
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
        )

    def run(self) -> tuple[Tally, bool]:
        """Replay them all. Returns what they amount to, and whether that is only a part of it."""
        reader = Reader(self._shard)
        try:
            kin = (
                find_session_trees(self._job.files, self._report_progress)
                if self._trees is None
                else self._trees
            )
            for family in kin:
                if self._is_assigned(family.indices[0]):
                    self._replay_tree(reader, family)
        except StoppedError:
            return self._replay.stop(), True
        return self._replay.stop(), False

    def _replay_tree(self, reader: Reader, tree: SessionTree) -> None:
        files, before = self._job.files, self._shard.bytes_read
        place, *others = tree.indices
        if others:
            self._replay.add_tree(reader, files, tree)
            self._report_progress()
        else:
            for member, trace in enumerate(reader.iter_files(files[place])):
                self._replay.add(trace, (place, member))
                self._report_progress()
        if self._shard.bytes_read == before:
            self._file_bytes += sum(file_size(files[place]) for place in tree.indices)

    def _report_progress(self) -> None:
        done, events = self._file_bytes + self._shard.bytes_read, self._replay.events
        more, more_events = done - self._reported_bytes, events - self._reported_events
        self._reported_bytes, self._reported_events = done, events
        self._on_progress(more, more_events)


def run_job(job: Job, inputs: JobInputs, on_progress: ProgressCallback) -> Figures:
    """Replay a job in this process."""
    tally, partial = ReplayWorker(job, inputs, LineShard(), lambda place: True, on_progress).run()
    return build_report(job, inputs, [tally], partial=partial)


def build_report(
    job: Job, inputs: JobInputs, tallies: Sequence[Tally], *, partial: bool
) -> Figures:
    """The report of a job whose parts amount to `tallies`."""
    first, *others = tallies
    for tally in others:
        first.merge(tally)
    figures = first.build_figures(inputs.labels, partial=partial)
    figures.traces.named_files = len(job.files)
    return figures


def file_size(file: Path) -> int:
    """Bytes of a file, 0 where that cannot be told."""
    try:
        return file.stat().st_size
    except OSError:
        return 0
