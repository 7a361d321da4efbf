"""A job over many recordings, as plain values, and the part of it that one process folds."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, Generic, Protocol, Self, TypeVar

import msgspec

from policyguard.compiler import CompiledPolicy
from policyguard.model.errors import PolicyguardError
from policyguard.simulate.jobs.line_shard import LineShard
from policyguard.simulate.labels import Labels
from policyguard.simulate.replay import REPLAY_KEY, load
from policyguard.simulate.sample.sampling import Draw
from policyguard.simulate.tally import ReportSize
from policyguard.traces import Reader, TraceFile
from policyguard.traces.containers.row_filter import Rows
from policyguard.traces.formats.native import FORMAT
from policyguard.traces.session_trees import SessionTree, find_session_trees, join_trees


class Key(bytes):
    """A key of fingerprints, which no log or message shows."""

    def __repr__(self) -> str:
        return "Key(…)"


class Job(msgspec.Struct, frozen=True, kw_only=True):
    """A description of a replay in plain values, which can be sent to another process.

    `policies` and `baseline` are as `load` takes them; an empty `baseline` means none. `where`
    selects rows of Parquet files and folders (see `row_filter`), `columns` says what the columns
    of other schemas are (see `parse_columns`), `sample` is the share of sessions to replay, and
    `draw` what it is drawn from. `revision` is that of the inputs, if they are known. `by_time`:
    sessions of different files affect each other, so files in our own format are read as one.
    `key` is that of fingerprints, by default the one of all replays.
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
    draw: Draw = Draw()
    revision: str = ""
    by_time: bool = False
    key: Key = Key(REPLAY_KEY)

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
            load(job.policies, job.key),
            load(job.baseline, job.key) if job.baseline else None,
            Labels.read(job.labels) if job.labels is not None else None,
        )

    @property
    def revision(self) -> str:
        """A text that differs if the policies or the labels do."""
        digests = [policy.evaluator.digest for policy in (self.policy, self.baseline) if policy]
        labels = self.labels.digest if self.labels is not None else ""
        return hashlib.sha256("\n".join((*digests, labels)).encode()).hexdigest()


def load_inputs(job: Job) -> JobInputs:
    """Load a job's inputs in a worker, once. Raises `WorkerError` if they are others than here."""
    inputs = _load(job.policies, job.baseline, job.labels, job.revision, job.key)
    if job.revision not in ("", inputs.revision):
        raise WorkerError("the policies or labels that a worker reads differ from those here")
    return inputs


@lru_cache(maxsize=1)
def _load(
    policies: tuple[str, ...],
    baseline: tuple[str, ...],
    labels: Path | None,
    revision: str,
    key: Key,
) -> JobInputs:
    return JobInputs.load(Job(policies=policies, baseline=baseline, labels=labels, key=key))


class WorkerError(PolicyguardError):
    """A worker failed; the message says how."""


class StoppedError(Exception):
    """A request to stop; everything read so far is counted."""


class ProgressCallback(Protocol):
    """A callback for the progress of a job, which may stop it."""

    def __call__(self, done: int, events: int, note: str = "") -> None:
        """Report how many more bytes and events were read. Raises `StoppedError` to stop.

        `note` says more about the progress so far, for a person.
        """
        ...


class Result(Protocol):
    """What a part of a job comes to; the results of the parts add up to that of the whole."""

    @property
    def events(self) -> int:
        """The number of events it comes from."""
        ...

    def merge(self, other: Self) -> None:
        """Add the result of another part."""
        ...


class NarrowedResult(Result, Protocol):
    """A result that drops what no part of the job needs, once it is known what all of them have."""

    def summarize(self) -> Result:
        """Return what the other parts must know of this one."""
        ...

    def narrow(self, summary: Any) -> Self:
        """Return the result without what is not needed, given the sum of all summaries."""
        ...


R = TypeVar("R", bound=Result)
R_co = TypeVar("R_co", bound=Result, covariant=True)


class Fold(Protocol[R_co]):
    """A fold over recordings, file by file or tree by tree."""

    @property
    def events(self) -> int:
        """The number of events read."""
        ...

    def add(
        self, trace: TraceFile, order: tuple[int, int] | None = None, *, whole: bool = False
    ) -> None:
        """Fold one file; `order` is its position among all files. With `whole`, no line is left."""
        ...

    def add_tree(self, reader: Reader, files: Sequence[Path], tree: SessionTree) -> None:
        """Fold the files of a session tree as one, in order of time."""
        ...

    def stop(self) -> R_co:
        """Stop, and return the result of what was read."""
        ...


StartFold = Callable[[Job, JobInputs | None, LineShard, Callable[[], None]], Fold[R]]
"""Starts a fold of the lines of a shard. Without inputs it loads those that it needs.

It is a function of a module, or a `partial` of one, so that it can be sent to another process. The
last argument is called now and then between two events, and may raise `StoppedError`.
"""


class FoldWorker(Generic[R]):
    """The part of a job that one process folds.

    To construct it loads what the fold needs.
    """

    def __init__(
        self,
        start: StartFold[R],
        job: Job,
        inputs: JobInputs | None,
        shard: LineShard,
        on_progress: ProgressCallback,
    ) -> None:
        self._job = job
        self._shard = shard
        self._on_progress = on_progress
        self._file_bytes = self._reported_bytes = self._reported_events = 0
        self._fold = start(job, inputs, shard, self._report_progress)

    def run(
        self,
        trees: Iterable[SessionTree] | None = None,
        is_shared: Callable[[int], bool] = lambda index: True,
    ) -> tuple[R, bool]:
        """Fold trees, by default all of the job. Return the result, and whether it is partial.

        It is partial also if `trees` raises `StoppedError`. The lines of a file for whose index
        `is_shared` holds are those of the shard.
        """
        rows = self._job.read_rows()
        reader = Reader(self._shard, rows)
        try:
            if trees is None:
                trees = find_session_trees(self._job.files, self._report_progress, rows)
                if self._job.by_time:
                    trees = join_trees(trees)
            for tree in trees:
                self._fold_tree(reader, tree, is_shared(tree.indices[0]))
        except StoppedError:
            return self._fold.stop(), True
        return self._fold.stop(), False

    def _fold_tree(self, reader: Reader, tree: SessionTree, is_shared: bool) -> None:
        files, before = self._job.files, self._shard.bytes_read
        index, *others = tree.indices
        if others:
            self._fold.add_tree(reader, files, tree)
            self._report_progress()
        else:
            for member, trace in enumerate(reader.iter_files(files[index])):
                # Of a shared file, the first worker says why it cannot be read.
                if trace.format == FORMAT or not is_shared or self._shard.index == 0:
                    self._fold.add(trace, (index, member), whole=not is_shared)
                self._report_progress()
        if self._shard.bytes_read == before:
            self._file_bytes += sum(file_size(files[index]) for index in tree.indices)

    def _report_progress(self) -> None:
        done, events = self._file_bytes + self._shard.bytes_read, self._fold.events
        new_bytes, new_events = done - self._reported_bytes, events - self._reported_events
        self._reported_bytes, self._reported_events = done, events
        self._on_progress(new_bytes, new_events)


class Executor(Protocol):
    """What folds a job: this process, others, or an engine's."""

    def fold(
        self,
        start: StartFold[R],
        job: Job,
        inputs: JobInputs,
        on_progress: ProgressCallback,
        *,
        narrow: bool = False,
    ) -> tuple[R, bool]:
        """Return the result of a job, the same whatever the executor, and whether it is partial.

        With `narrow` the parts have a `NarrowedResult`, and are narrowed before they are added up,
        unless the result is partial. Raises `WorkerError` if a worker fails.
        """
        ...


class OneProcess:
    """An executor that is this process."""

    def fold(
        self,
        start: StartFold[R],
        job: Job,
        inputs: JobInputs,
        on_progress: ProgressCallback,
        *,
        narrow: bool = False,
    ) -> tuple[R, bool]:
        """Fold a job here."""
        result, partial = FoldWorker(start, job, inputs, LineShard(), on_progress).run()
        if narrow and not partial:
            result = narrow_result(result, summarize(result))
        return result, partial


ONE_PROCESS = OneProcess()


def merge(first: R, *others: R) -> R:
    """Add results to the first one, in their order, and return it."""
    for result in others:
        first.merge(result)
    return first


def summarize(result: Any) -> Any:
    """Return what the other parts must know of this one."""
    return result.summarize()


def narrow_result(result: Any, summary: Any) -> Any:
    """Return a result without what no part needs."""
    return result.narrow(summary)


def file_size(file: Path) -> int:
    """Return the size of a file in bytes, 0 if it is unknown."""
    try:
        return file.stat().st_size
    except OSError:
        return 0
