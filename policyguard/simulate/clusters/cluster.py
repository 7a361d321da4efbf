"""What all engines do: split a job, replay its parts, and add up their tallies in a tree."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from importlib import import_module
from typing import Protocol

from policyguard.report.replay.figures import Figures
from policyguard.simulate.job import (
    Job,
    JobInputs,
    ProgressCallback,
    StoppedError,
    build_report,
    merge,
    run_job,
)
from policyguard.simulate.parts import Part, replay_part, split
from policyguard.simulate.tally import Tally
from policyguard.simulate.workers import WorkerError, find_sequential_entries
from policyguard.traces.session_trees import find_session_trees

ENGINES = ("dask", "ray")
"""Engines by their names, which are those of modules here and of extras."""
_FAN_IN = 8
"""How many tallies one task adds up."""
_POLL_SECONDS = 0.2


class Task(Protocol):
    """A result that an engine computes, or has."""


class Engine(Protocol):
    """A connection to an engine."""

    def submit(self, function: Callable[..., Tally], *args: object) -> Task:
        """Begin a task. The engine retries it if its worker dies; tasks in `args` come first."""

    def wait(self, tasks: Sequence[Task], seconds: float) -> list[Task]:
        """Return the tasks that have ended, of these, after at most some seconds."""

    def check(self, task: Task) -> None:
        """Raise what an ended task raised, or that it was lost; without fetching its result."""

    def result(self, task: Task) -> Tally:
        """Return what a task returns. Raises what it raised, or that it was lost."""

    def cancel(self, tasks: Sequence[Task]) -> None:
        """Give up tasks that have not ended."""


Connect = Callable[[str, int], AbstractContextManager[Engine]]
"""Connects to an engine at an address; empty for a cluster of its own with so many workers."""


def run_on(
    engine: str,
    address: str,
    workers: int,
    job: Job,
    inputs: JobInputs,
    on_progress: ProgressCallback,
) -> Figures:
    """Replay a job on an engine: the same report byte for byte as by one process.

    Raises `WorkerError` if the engine is not installed or cannot be reached, or if a part fails
    again after the engine has retried it.
    """
    connect = _find_engine(engine)
    if find_sequential_entries(inputs):
        return run_job(job, inputs, on_progress)
    try:
        trees = find_session_trees(job.files, lambda: on_progress(0, 0), job.read_rows())
    except StoppedError:
        return run_job(job, inputs, on_progress)  # stops at once, with an empty report
    parts = split(job.files, trees, workers)
    with connect(address, workers) as connected:
        tallies, partial = _replay(connected, job, parts, on_progress)
    if not tallies:  # stopped before the first was done, or there is nothing to read
        tallies = [replay_part(job, Part((), 0))]
    return build_report(job, inputs, tallies, partial=partial)


def _replay(
    engine: Engine, job: Job, parts: Sequence[Part], on_progress: ProgressCallback
) -> tuple[list[Tally], bool]:
    """Replay the parts. Return tallies whose sum is theirs, and whether it was stopped.

    A stopped replay has the tallies of the parts that had ended.
    """
    tasks = [engine.submit(replay_part, job, part) for part in parts]
    try:
        for done in _iter_ended(engine, tasks, on_progress):
            on_progress(parts[done].size, 0)
            _require_success(engine, tasks[done], job, parts[done])
    except StoppedError:
        ended = engine.wait(tasks, 0)
        engine.cancel([task for task in tasks if task not in ended])
        return [engine.result(task) for task in tasks if task in ended], True
    while len(tasks) > 1:
        groups = [tasks[start : start + _FAN_IN] for start in range(0, len(tasks), _FAN_IN)]
        tasks = [engine.submit(merge, *group) for group in groups]
    return [engine.result(task) for task in tasks], False


def _iter_ended(
    engine: Engine, tasks: Sequence[Task], on_progress: ProgressCallback
) -> Iterator[int]:
    """Yield the index of each task when it has ended."""
    waiting = dict(enumerate(tasks))
    while waiting:
        on_progress(0, 0)
        ended = engine.wait([*waiting.values()], _POLL_SECONDS)
        for index in [index for index, task in waiting.items() if task in ended]:
            del waiting[index]
            yield index


def _require_success(engine: Engine, task: Task, job: Job, part: Part) -> None:
    try:
        engine.check(task)
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
