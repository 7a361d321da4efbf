"""What all engines do: split a job, fold its parts, and add up their results in a tree."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from importlib import import_module
from typing import Any, NamedTuple, Protocol

from policyguard.simulate.jobs.job import (
    Executor,
    Job,
    JobInputs,
    ProgressCallback,
    R,
    StartFold,
    StoppedError,
    WorkerError,
    merge,
    narrow_result,
    summarize,
)
from policyguard.simulate.jobs.line_shard import LineShard
from policyguard.simulate.jobs.parts import Part, fold_part, split
from policyguard.traces.session_trees import find_session_trees

ENGINES = ("dask", "ray")
"""Engines by their names, which are those of modules here and of extras."""
_FAN_IN = 8
"""How many results one task adds up."""
_POLL_SECONDS = 0.2


class Task(Protocol):
    """A result that an engine computes, or has."""


class Ended(NamedTuple):
    """How a task ended: the events it read, and how often it was tried before; None if unknown."""

    events: int = 0
    retries: int | None = None


class Engine(Protocol):
    """A connection to an engine."""

    def submit(self, function: Callable[..., Any], *args: object) -> Task:
        """Begin a task. The engine retries it if its worker dies; tasks in `args` come first."""

    def wait(self, tasks: Sequence[Task], seconds: float) -> list[Task]:
        """Return the tasks that have ended, of these, after at most some seconds."""

    def check(self, task: Task) -> Ended:
        """Say how a task ended, without fetching its result.

        Raises what it raised, or that it was lost.
        """

    def result(self, task: Task) -> Any:
        """Return what a task returns. Raises what it raised, or that it was lost."""

    def cancel(self, tasks: Sequence[Task]) -> None:
        """Give up tasks that have not ended."""


Connect = Callable[[str, int], AbstractContextManager[Engine]]
"""Connects to an engine at an address; empty for a cluster of its own with so many workers."""


@contextmanager
def connect(engine: str, address: str, workers: int) -> Iterator[Executor]:
    """Connect to an engine. Raises `WorkerError` if it is not installed or cannot be reached."""
    with _find_engine(engine)(address, workers) as connected:
        yield _Cluster(connected, workers)


class _Cluster:
    """An engine's workers as an executor."""

    def __init__(self, engine: Engine, workers: int) -> None:
        self._engine = engine
        self._workers = workers

    def fold(
        self,
        start: StartFold[R],
        job: Job,
        inputs: JobInputs,
        on_progress: ProgressCallback,
        *,
        narrow: bool = False,
    ) -> tuple[R, bool]:
        """Fold a job. Raises `WorkerError` if a part fails after the engine has retried it.

        If stopped, the result is that of the parts that had ended.
        """
        results: list[R] = []
        stopped = False
        try:
            trees = find_session_trees(job.files, lambda: on_progress(0, 0), job.read_rows())
            parts = split(job.files, trees, self._workers)
        except StoppedError:
            stopped = True
        else:
            results, stopped = self._fold_parts(start, job, parts, on_progress, narrow=narrow)
        if not results:  # stopped before the first was done, or there is nothing to read
            results = [start(job, inputs, LineShard(), lambda: None).stop()]
        return merge(*results), stopped

    def _fold_parts(
        self,
        start: StartFold[R],
        job: Job,
        parts: Sequence[Part],
        on_progress: ProgressCallback,
        *,
        narrow: bool,
    ) -> tuple[list[R], bool]:
        """Return results whose sum is that of the parts, and whether it was stopped."""
        engine = self._engine
        tasks = [engine.submit(fold_part, start, job, part) for part in parts]
        progress = _PartsProgress(len(parts), on_progress)
        try:
            for done in _iter_ended(engine, tasks, progress.report):
                progress.end(parts[done], _require_success(engine, tasks[done], job, parts[done]))
        except StoppedError:
            ended = engine.wait(tasks, 0)
            engine.cancel([task for task in tasks if task not in ended])
            return [engine.result(task) for task in tasks if task in ended], True
        if narrow:
            for summary in self._merge([engine.submit(summarize, task) for task in tasks]):
                tasks = [engine.submit(narrow_result, task, summary) for task in tasks]
        return [engine.result(task) for task in self._merge(tasks)], False

    def _merge(self, tasks: list[Task]) -> list[Task]:
        """Add up results in a tree: return one task, none if there are none."""
        while len(tasks) > 1:
            groups = [tasks[start : start + _FAN_IN] for start in range(0, len(tasks), _FAN_IN)]
            tasks = [self._engine.submit(merge, *group) for group in groups]
        return tasks


class _PartsProgress:
    """Counts the parts that have ended."""

    def __init__(self, parts: int, on_progress: ProgressCallback) -> None:
        self._parts = parts
        self._ended = self._retries = 0
        self._on_progress = on_progress

    def report(self) -> None:
        """Report that the job goes on. Raises `StoppedError` to stop."""
        self._on_progress(0, 0, self._note)

    def end(self, part: Part, ended: Ended) -> None:
        """Report that a part has ended."""
        self._ended += 1
        self._retries += ended.retries or 0
        self._on_progress(part.size, ended.events, self._note)

    @property
    def _note(self) -> str:
        retried = f", {self._retries} failed and retried" if self._retries else ""
        return f"{self._ended} of {self._parts} parts{retried}"


def _iter_ended(
    engine: Engine, tasks: Sequence[Task], on_wait: Callable[[], None]
) -> Iterator[int]:
    """Yield the index of each task when it has ended."""
    waiting = dict(enumerate(tasks))
    while waiting:
        on_wait()
        ended = engine.wait([*waiting.values()], _POLL_SECONDS)
        for index in [index for index, task in waiting.items() if task in ended]:
            del waiting[index]
            yield index


def _require_success(engine: Engine, task: Task, job: Job, part: Part) -> Ended:
    try:
        return engine.check(task)
    except Exception as error:  # noqa: BLE001 - engines have no common base of errors
        files = [str(job.files[index]) for tree in part.trees for index in tree.indices]
        more = f" and {len(files) - 1} more" if len(files) > 1 else ""
        raise WorkerError(
            f"the part with {files[0]}{more} failed, also when it was tried again: "
            f"{type(error).__name__}: {error}"
        ) from None


def _find_engine(name: str) -> Connect:
    try:
        module = import_module(f"policyguard.simulate.clusters.{name}")
    except ImportError as error:
        raise WorkerError(
            f"`{name}` needs `{error.name}`, which is not installed: "
            f"pip install 'policyguard-engine[{name}]'"
        ) from None
    connect: Connect = module.connect
    return connect
