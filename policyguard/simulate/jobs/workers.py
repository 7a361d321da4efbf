"""A job that several processes share."""

from __future__ import annotations

import signal
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from heapq import heapreplace
from itertools import chain, islice
from multiprocessing import connection, get_context
from multiprocessing.connection import Connection
from multiprocessing.context import SpawnProcess
from pathlib import Path
from typing import Any, NamedTuple

from policyguard.simulate.jobs.job import (
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
    narrow_result,
    summarize,
)
from policyguard.simulate.jobs.line_shard import LineShard
from policyguard.simulate.jobs.reading_units import ReadingUnit, iter_reading_units, measure_trees
from policyguard.simulate.sessions.replayed_policy import find_shared_entries
from policyguard.traces.containers.content import PlainFile
from policyguard.traces.containers.parquet import MAGIC as PARQUET_MAGIC
from policyguard.traces.item import UnreadableError
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
_BATCHES_PER_WORKER = 2
"""What is left, by the size of a worker's next batch: it shrinks, so that all end together."""
_EVEN = 17 / 16
"""What the busiest worker may have over its share before large files are shared by lines."""
_TREES_AHEAD = 16
"""Trees that are looked at before the next look at messages; to replay so many takes far longer."""


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
            with PlainFile(file).open() as opened:
                head = opened.read(_SAMPLED_LINE_BYTES)
        except (OSError, UnreadableError):
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
        self,
        start: StartFold[R],
        job: Job,
        inputs: JobInputs,
        on_progress: ProgressCallback,
        *,
        narrow: bool = False,
    ) -> tuple[R, bool]:
        """Fold a job. Raises `WorkerError`."""
        if self._workers < 2:
            return OneProcess().fold(start, job, inputs, on_progress, narrow=narrow)
        pool = _WorkerPool(start, job, self._workers, narrow=narrow)
        try:
            trees = find_session_trees(job.files, lambda: on_progress(0, 0), job.read_rows())
            pool.assign(job.files, trees, on_progress)
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


class _Idle(NamedTuple):
    """Asks for more trees."""


class _Summary(NamedTuple):
    value: Any


class _Result(NamedTuple):
    number: int
    value: Any
    partial: bool


class _Failure(NamedTuple):
    reason: str


_Message = _Progress | _Idle | _Summary | _Result | _Failure
"""A message from a worker."""


class _WorkerPool:
    """Worker processes, each connected by a pipe. They start while their work is still sought."""

    def __init__(self, start: StartFold[Any], job: Job, workers: int, *, narrow: bool) -> None:
        # Fresh interpreters: workers inherit no open files or threads.
        context = get_context("spawn")
        self._processes: dict[Connection, SpawnProcess] = {}
        with interrupts_ignored():
            for number in range(workers):
                ours, theirs = context.Pipe()
                process = context.Process(
                    target=_run_worker,
                    args=(theirs, number, workers),
                    daemon=True,
                )
                process.start()
                theirs.close()
                self._processes[ours] = process
        for pipe in self._processes:  # a large job, once all are starting: they read it late
            self._send(pipe, (start, job, narrow))
        self._waiting = list(self._processes)
        self._summaries: list[Any] = []
        self._left = Batches((), (), workers)

    def assign(
        self, files: Sequence[Path], trees: Sequence[SessionTree], on_progress: ProgressCallback
    ) -> None:
        """Give the workers what they share, and what is left when they ask for it."""
        self._left = Batches(files, trees, len(self._processes))
        shared = self._left.share_large_files(lambda: on_progress(0, 0))
        for pipe in self._processes:
            self._send(pipe, shared)

    def next_result(self, on_progress: ProgressCallback) -> _Result:
        """Wait for the next worker's result. Raises `WorkerError`."""
        while True:
            messages = connection.wait(self._waiting, None if self._left.are_known else 0)
            if not messages:
                self._left.look_ahead()
                self._report(on_progress, _Progress(0, 0))
            for ready in messages:
                pipe = next(pipe for pipe in self._waiting if pipe is ready)
                message = self._receive(pipe)
                if isinstance(message, _Failure):
                    raise WorkerError(message.reason)
                if isinstance(message, _Idle):
                    self._send(pipe, self._left.take())
                    continue
                if isinstance(message, _Summary):
                    self._summaries.append(message.value)
                    if len(self._summaries) == len(self._processes):
                        self._send_all(merge(*self._summaries))
                    continue
                if isinstance(message, _Result):
                    self._waiting.remove(pipe)
                    return message
                self._report(on_progress, message)

    def _report(self, on_progress: ProgressCallback, progress: _Progress) -> None:
        """Report progress. If that stops the job, stop the workers."""
        try:
            on_progress(progress.done, progress.events)
        except StoppedError:
            self._left = Batches((), (), len(self._processes))
            self._send_all(None)

    def close(self) -> None:
        """Terminate the workers that are still running."""
        for pipe, process in self._processes.items():
            pipe.close()
            if pipe in self._waiting:
                process.terminate()
            process.join()

    def _send_all(self, message: Any) -> None:
        """Send the sum of all summaries, or None to stop."""
        for waiting in self._waiting:
            self._send(waiting, message)

    def _send(self, pipe: Connection, message: Any) -> None:
        """Send the job, or trees, none if there are no more; None to stop."""
        with suppress(OSError):  # it has finished, or failed, which it reports
            pipe.send(message)

    def _receive(self, pipe: Connection) -> _Message:
        try:
            message: _Message = pipe.recv()
        except (EOFError, OSError):  # the latter if it had not read all that it was sent
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


class Batches:
    """Trees that no worker has yet. They are looked at while workers read others.

    What is large is read first, so that no worker waits for it at the end; the others in order.
    """

    def __init__(self, files: Sequence[Path], trees: Sequence[SessionTree], workers: int) -> None:
        sized = measure_trees(files, trees)
        self._size = sum(size for _, size in sized)
        small = self._size // (workers * _FILES_PER_WORKER)
        sized.sort(key=lambda tree: -tree[1] if tree[1] > small else 0)
        self._large = sum(size > small for _, size in sized)
        self._are_even = _fullest([size for _, size in sized], workers) * workers <= (
            self._size * _EVEN
        )
        self._unseen = iter_reading_units(files, sized)
        self._units: deque[ReadingUnit] = deque()
        self._batches = workers * _BATCHES_PER_WORKER
        self.are_known = False

    def share_large_files(self, on_progress: Callable[[], None]) -> list[SessionTree]:
        """Return the files that all workers share. `on_progress` may raise to stop.

        To share costs each worker a look at all lines, so small files are not shared, and large
        ones only where whole files would leave a worker idle.
        """
        shared: list[SessionTree] = []
        for unit in islice(self._unseen, self._large):
            on_progress()
            if unit is not None and unit.is_shared and not self._are_even:
                self._size -= unit.size
                shared += unit.trees
            elif unit is not None:
                self._units.append(unit)
        return shared

    def look_ahead(self) -> None:
        """Look at some more trees, if there are any."""
        looked_at = list(islice(self._unseen, _TREES_AHEAD))
        self._units += (unit for unit in looked_at if unit is not None)
        self.are_known = not looked_at

    def take(self) -> list[SessionTree]:
        """Return the trees of the next batch, none if nothing is left."""
        target, taken = self._size // self._batches, 0
        trees: list[SessionTree] = []
        while not trees or taken < target:
            while not (self._units or self.are_known):
                self.look_ahead()
            if not self._units:
                break
            unit = self._units.popleft()
            taken += unit.size
            trees += unit.trees
        self._size -= taken
        return trees


def _fullest(sizes: Iterable[int], workers: int) -> int:
    """Return the load of the fullest worker if each size in turn goes to the emptiest."""
    loads = [0] * workers
    for size in sizes:
        heapreplace(loads, loads[0] + size)
    return max(loads)


def _run_worker(pipe: Connection, number: int, workers: int) -> None:
    """Fold this worker's part of a job: report progress, obey stop requests, send the result."""

    def on_progress(done: int, events: int, note: str = "") -> None:
        pipe.send(_Progress(done, events))
        if pipe.poll():
            raise StoppedError

    try:
        start, job, narrow = pipe.recv()
        worker = FoldWorker(start, job, None, LineShard(number, workers), on_progress)
        shared = _receive_trees(pipe)
        indices = frozenset(index for tree in shared for index in tree.indices)
        trees = chain(shared, _ask_for_trees(pipe))
        value, partial = worker.run(trees, indices.__contains__)
        if narrow and not partial:
            pipe.send(_Summary(summarize(value)))
            summary = pipe.recv()
            partial = summary is None
            value = value if partial else narrow_result(value, summary)
        pipe.send(_Result(number, value, partial))
    except (BrokenPipeError, EOFError, ConnectionResetError):
        return  # the main process is gone
    except Exception as error:  # noqa: BLE001 - the main process raises it
        pipe.send(_Failure(f"a worker failed: {type(error).__name__}: {error}"))


def _ask_for_trees(pipe: Connection) -> Iterator[SessionTree]:
    """Yield trees as long as there are any."""
    while True:
        pipe.send(_Idle())
        trees = _receive_trees(pipe)
        if not trees:
            return
        yield from trees


def _receive_trees(pipe: Connection) -> Sequence[SessionTree]:
    """Return what was sent. Raises `StoppedError`."""
    trees: Sequence[SessionTree] | None = pipe.recv()
    if trees is None:
        raise StoppedError
    return trees
