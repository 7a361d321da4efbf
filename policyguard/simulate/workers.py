"""A job done by several processes."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from multiprocessing import connection, get_context
from multiprocessing.connection import Connection
from multiprocessing.context import SpawnProcess
from pathlib import Path
from typing import NamedTuple

from policyguard.model.errors import PolicyguardError
from policyguard.report.replay.figures import Figures
from policyguard.simulate.job import (
    Job,
    JobInputs,
    ProgressCallback,
    ReplayWorker,
    StoppedError,
    build_report,
    file_size,
    run_job,
)
from policyguard.simulate.line_shard import LineShard
from policyguard.simulate.shared_entries import find_shared_entries
from policyguard.simulate.tally import Tally
from policyguard.traces import Reader
from policyguard.traces.formats.native import FORMAT
from policyguard.traces.session_trees import SessionTree, find_session_trees

_ORDERED_FORMAT = "tau2"
"""Runs of this format stand in several files and are counted once, where they are met first."""
_EVERY_WORKER = -1
"""In place of a worker's number."""


class WorkerError(PolicyguardError):
    """A worker has died; the message says how."""


def find_sequential_entries(inputs: JobInputs) -> tuple[str, ...]:
    """The entries of the policies for which sessions must be replayed one after the other.

    Where there is one, a job is done by one process, whatever was asked for.
    """
    both = (inputs.policy, inputs.baseline)
    return tuple(
        dict.fromkeys(
            entry for one in both if one is not None for entry in find_shared_entries(one)
        )
    )


def run_parallel(
    workers: int, job: Job, inputs: JobInputs, on_progress: ProgressCallback
) -> Figures:
    """Replay a job by so many processes. Raises `WorkerError`."""
    if workers < 2 or find_sequential_entries(inputs):
        return run_job(job, inputs, on_progress)
    try:
        kin = find_session_trees(job.files, lambda: on_progress(0, 0))
        shares = _assign_files(job.files, kin, workers, on_progress)
    except StoppedError:
        return run_job(job, inputs, on_progress)  # which heeds it as well
    team = _WorkerPool(job, workers, shares, kin)
    try:
        parts = [team.next_result(on_progress) for _ in range(workers)]
    finally:
        team.close()
    parts.sort(key=lambda part: part.number)
    partial = any(part.partial for part in parts)
    return build_report(job, inputs, [part.tally for part in parts], partial=partial)


class _Progress(NamedTuple):
    done: int
    events: int


class _Result(NamedTuple):
    number: int
    tally: Tally
    partial: bool


class _Failure(NamedTuple):
    reason: str


_Message = _Progress | _Result | _Failure
"""What a worker says."""


class _WorkerPool:
    """Workers, each at the other end of a pipe."""

    def __init__(
        self, job: Job, workers: int, assignment: list[int], trees: list[SessionTree]
    ) -> None:
        # A fresh interpreter each: what this process has open or running is none of theirs.
        context = get_context("spawn")
        self._processes: dict[Connection, SpawnProcess] = {}
        with _interrupts_ignored():
            for number in range(workers):
                ours, theirs = context.Pipe()
                process = context.Process(
                    target=_run_worker,
                    args=(theirs, job, number, workers, assignment, trees),
                    daemon=True,
                )
                process.start()
                theirs.close()
                self._processes[ours] = process
        self._waiting = list(self._processes)

    def next_result(self, on_progress: ProgressCallback) -> _Result:
        """The next worker's result. Raises `WorkerError`."""
        while True:
            for ready in connection.wait(self._waiting):
                pipe = next(one for one in self._waiting if one is ready)
                told = self._receive(pipe)
                if isinstance(told, _Failure):
                    raise WorkerError(told.reason)
                if isinstance(told, _Result):
                    self._waiting.remove(pipe)
                    return told
                try:
                    on_progress(told.done, told.events)
                except StoppedError:
                    for one in self._waiting:
                        with suppress(OSError):  # it may have finished
                            one.send(None)

    def close(self) -> None:
        """Nobody waits any more: whoever is still at work stops."""
        for pipe, process in self._processes.items():
            pipe.close()
            if pipe in self._waiting:
                process.terminate()
            process.join()

    def _receive(self, pipe: Connection) -> _Message:
        try:
            told: _Message = pipe.recv()
        except EOFError:
            process = self._processes[pipe]
            process.join()
            raise WorkerError(f"a worker has died (exit code {process.exitcode})") from None
        return told


@contextmanager
def _interrupts_ignored() -> Iterator[None]:
    """Processes that are started now do not hear the terminal's interrupt; they are told."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _assign_files(
    files: Sequence[Path], trees: Sequence[SessionTree], workers: int, on_progress: ProgressCallback
) -> list[int]:
    """Which worker reads a file; `_ALL` for one whose sessions they divide among them."""
    load = [0] * workers
    shares = [_EVERY_WORKER] * len(files)
    whole = []
    for family in trees:
        on_progress(0, 0)
        place, *others = family.indices
        formats = {trace.format for trace in Reader().iter_files(files[place])}
        total = sum(file_size(files[one]) for one in family.indices)
        if _ORDERED_FORMAT in formats:
            shares[place] = 0
            load[0] += total
        elif others or formats != {FORMAT}:
            whole.append((-total, family.indices))
    for less, places in sorted(whole):
        worker = load.index(min(load))
        for place in places:
            shares[place] = worker
        load[worker] -= less
    return shares


def _run_worker(
    pipe: Connection,
    job: Job,
    number: int,
    workers: int,
    assignment: list[int],
    trees: list[SessionTree],
) -> None:
    """What a worker does. It tells how it goes, heeds what it is told, and gives its tally."""

    def watch(done: int, events: int) -> None:
        pipe.send(_Progress(done, events))
        if pipe.poll():
            raise StoppedError

    try:
        mine = (_EVERY_WORKER, number)
        part = LineShard(number, workers)
        walk = ReplayWorker(
            job, JobInputs.load(job), part, lambda place: assignment[place] in mine, watch, trees
        )
        pipe.send(_Result(number, *walk.run()))
    except (BrokenPipeError, EOFError, ConnectionResetError):
        return  # nobody waits any more
    except Exception as error:  # noqa: BLE001 - told to whoever waits, who raises it
        pipe.send(_Failure(f"a worker has failed: {type(error).__name__}: {error}"))
