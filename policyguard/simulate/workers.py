"""A job that several processes share."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from multiprocessing import connection, get_context
from multiprocessing.connection import Connection
from multiprocessing.context import SpawnProcess
from pathlib import Path
from typing import Any, NamedTuple

from policyguard.simulate.job import (
    FoldWorker,
    Job,
    JobInputs,
    OneProcess,
    ProgressCallback,
    R,
    StartFold,
    StoppedError,
    WorkerError,
    file_size,
    merge,
)
from policyguard.simulate.line_shard import LineShard
from policyguard.simulate.reading_units import ReadingUnit, find_reading_units
from policyguard.simulate.replayed_policy import find_shared_entries
from policyguard.traces.containers.parquet import MAGIC as PARQUET_MAGIC
from policyguard.traces.session_trees import SessionTree, find_session_trees

MIN_WORKER_BYTES = 1 << 26
"""The least that a worker should have to read: what one replays in twice the time it starts in."""
_LINE_BYTES = 800
"""What a line of our own format costs beside its bytes: to decide takes longer than to read."""
_OTHER_FORMAT = 4
"""What a byte of another format costs at least: its lines are not known before it is parsed."""
_PARQUET_LINE_BYTES = 10
"""Bytes of an event in Parquet, about."""
_SAMPLED_FILES, _SAMPLED_LINE_BYTES = 16, 1 << 16
"""Files of which the beginning is looked at, and how much of each, to estimate their lines."""
_FILES_PER_WORKER = 8
"""If each worker has at least so many files, the last one leaves others idle for a short time."""
EVERY_WORKER = -1
"""Instead of a worker's number: all workers share the file."""


def count_useful_workers(workers: int, files: Sequence[Path]) -> int:
    """Return how many of these workers to start: each takes about a second before it reads."""
    if workers == 1:
        return 1
    work = int(sum(map(file_size, files)) * _work_per_byte(files))
    return max(1, min(workers, work // MIN_WORKER_BYTES))


def _work_per_byte(files: Sequence[Path]) -> float:
    """Estimate what a byte of these files costs, in bytes that are only read."""
    read = work = 0
    for file in files[:: max(1, len(files) // _SAMPLED_FILES)]:
        try:
            with file.open("rb") as opened:
                head = opened.read(_SAMPLED_LINE_BYTES)
        except OSError:
            continue
        lines = head.count(b'\n{"event":')
        if head.startswith(PARQUET_MAGIC):
            lines = len(head) // _PARQUET_LINE_BYTES
        read += len(head)
        work += len(head) + _LINE_BYTES * lines if lines else _OTHER_FORMAT * len(head)
    return work / read if read else 1.0


def find_sequential_entries(inputs: JobInputs) -> tuple[str, ...]:
    """Return the entries that require all sessions to be replayed in order.

    If there are any, one process does the job, however many were requested.
    """
    policies = [inputs.policy] if inputs.baseline is None else [inputs.policy, inputs.baseline]
    return tuple(dict.fromkeys(id_ for policy in policies for id_ in find_shared_entries(policy)))


class LocalProcesses:
    """So many processes of this machine as an executor."""

    def __init__(self, workers: int) -> None:
        self._workers = workers

    def fold(
        self, start: StartFold[R], job: Job, inputs: JobInputs, on_progress: ProgressCallback
    ) -> tuple[R, bool]:
        """Fold a job. Raises `WorkerError`."""
        if self._workers < 2:
            return OneProcess().fold(start, job, inputs, on_progress)
        pool = _WorkerPool(start, job, self._workers)
        try:
            trees = find_session_trees(job.files, lambda: on_progress(0, 0), job.read_rows())
            units = find_reading_units(job.files, trees, lambda: on_progress(0, 0))
            pool.assign(trees, assign_files(len(job.files), units, self._workers))
            results = [pool.next_result(on_progress) for _ in range(self._workers)]
        except StoppedError:  # before they read
            return start(job, inputs, LineShard(), lambda: None).stop(), True
        finally:
            pool.close()
        results.sort(key=lambda result: result.number)
        partial = any(result.partial for result in results)
        return merge(*(result.value for result in results)), partial


class _Progress(NamedTuple):
    done: int
    events: int


class _Result(NamedTuple):
    number: int
    value: Any
    partial: bool


class _Failure(NamedTuple):
    reason: str


_Message = _Progress | _Result | _Failure
"""A message from a worker."""


class _Assignment(NamedTuple):
    """The trees of a worker, and the indices of the files that it shares with all others."""

    trees: list[SessionTree]
    shared: frozenset[int]


class _WorkerPool:
    """Worker processes, each connected by a pipe. They start while their work is still sought."""

    def __init__(self, start: StartFold[Any], job: Job, workers: int) -> None:
        # Fresh interpreters: workers inherit no open files or threads.
        context = get_context("spawn")
        self._processes: dict[Connection, SpawnProcess] = {}
        with interrupts_ignored():
            for number in range(workers):
                ours, theirs = context.Pipe()
                process = context.Process(
                    target=_run_worker,
                    args=(theirs, start, job, number, workers),
                    daemon=True,
                )
                process.start()
                theirs.close()
                self._processes[ours] = process
        self._waiting = list(self._processes)

    def assign(self, trees: Sequence[SessionTree], workers: Sequence[int]) -> None:
        """Give each worker its trees; `workers` has that of each file, as `assign_files` does."""
        shared = frozenset(index for index, worker in enumerate(workers) if worker == EVERY_WORKER)
        for number, pipe in enumerate(self._processes):
            mine = [tree for tree in trees if workers[tree.indices[0]] in (EVERY_WORKER, number)]
            with suppress(OSError):  # it has failed, which it reports
                pipe.send(_Assignment(mine, shared))

    def next_result(self, on_progress: ProgressCallback) -> _Result:
        """Wait for the next worker's result. Raises `WorkerError`."""
        while True:
            for ready in connection.wait(self._waiting):
                pipe = next(pipe for pipe in self._waiting if pipe is ready)
                message = self._receive(pipe)
                if isinstance(message, _Failure):
                    raise WorkerError(message.reason)
                if isinstance(message, _Result):
                    self._waiting.remove(pipe)
                    return message
                try:
                    on_progress(message.done, message.events)
                except StoppedError:
                    for waiting in self._waiting:
                        with suppress(OSError):  # it may have finished
                            waiting.send(None)

    def close(self) -> None:
        """Terminate the workers that are still running."""
        for pipe, process in self._processes.items():
            pipe.close()
            if pipe in self._waiting:
                process.terminate()
            process.join()

    def _receive(self, pipe: Connection) -> _Message:
        try:
            message: _Message = pipe.recv()
        except EOFError:
            process = self._processes[pipe]
            process.join()
            raise WorkerError(f"a worker died (exit code {process.exitcode})") from None
        return message


@contextmanager
def interrupts_ignored() -> Iterator[None]:
    """Start processes that ignore the terminal's interrupt: this process tells them to stop."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def assign_files(files: int, units: Sequence[ReadingUnit], workers: int) -> list[int]:
    """Return the worker of each file, `EVERY_WORKER` if all of them share its sessions.

    To share costs each worker a look at all lines, so small files are not shared.
    """
    load = [0] * workers
    assignment = [EVERY_WORKER] * files
    small = sum(unit.size for unit in units) // (workers * _FILES_PER_WORKER)
    for unit in sorted(units, key=lambda unit: -unit.size):
        if unit.is_shared and unit.size > small:
            load = [size + unit.size // workers for size in load]
            continue
        worker = load.index(min(load))
        for tree in unit.trees:
            for index in tree.indices:
                assignment[index] = worker
        load[worker] += unit.size
    return assignment


def _run_worker(
    pipe: Connection,
    start: StartFold[Any],
    job: Job,
    number: int,
    workers: int,
) -> None:
    """Fold this worker's part of a job: report progress, obey stop requests, send the result."""

    def on_progress(done: int, events: int, note: str = "") -> None:
        pipe.send(_Progress(done, events))
        if pipe.poll():
            raise StoppedError

    try:
        worker = FoldWorker(start, job, None, LineShard(number, workers), on_progress)
        assigned: _Assignment = pipe.recv()
        pipe.send(_Result(number, *worker.run(assigned.trees, assigned.shared.__contains__)))
    except (BrokenPipeError, EOFError, ConnectionResetError):
        return  # the main process is gone
    except Exception as error:  # noqa: BLE001 - the main process raises it
        pipe.send(_Failure(f"a worker failed: {type(error).__name__}: {error}"))
