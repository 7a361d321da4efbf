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

from policyguard.report.figures import Figures
from policyguard.simulate.families import shared
from policyguard.simulate.job import Job, Loaded, StoppedError, Walk, Watch, concluded, run, size
from policyguard.simulate.part import Part
from policyguard.simulate.tally import Tally
from policyguard.traces import Reader
from policyguard.traces.family import Family, families
from policyguard.traces.native import FORMAT

_ORDERED = "tau2"
"""Runs of this format stand in several files and are counted once, where they are met first."""
_ALL = -1
"""In place of a worker's number."""


class WorkerError(Exception):
    """A worker has died; the message says how."""


def obstacle(loaded: Loaded) -> tuple[str, ...]:
    """The entries of the policies for which sessions must be replayed one after the other.

    Where there is one, a job is done by one process, whatever was asked for.
    """
    both = (loaded.policy, loaded.baseline)
    return tuple(dict.fromkeys(entry for one in both if one is not None for entry in shared(one)))


def run_with(workers: int, job: Job, loaded: Loaded, watch: Watch) -> Figures:
    """Replay a job by so many processes. Raises `WorkerError`."""
    if workers < 2 or obstacle(loaded):
        return run(job, loaded, watch)
    try:
        kin = families(job.files, lambda: watch(0, 0))
        shares = _shares(job.files, kin, workers, watch)
    except StoppedError:
        return run(job, loaded, watch)  # which heeds it as well
    team = _Team(job, workers, shares, kin)
    try:
        parts = [team.result(watch) for _ in range(workers)]
    finally:
        team.end()
    parts.sort(key=lambda part: part.number)
    partial = any(part.partial for part in parts)
    return concluded(job, loaded, [part.tally for part in parts], partial=partial)


class _Progress(NamedTuple):
    done: int
    events: int


class _Result(NamedTuple):
    number: int
    tally: Tally
    partial: bool


class _Failure(NamedTuple):
    reason: str


_Told = _Progress | _Result | _Failure
"""What a worker says."""


class _Team:
    """Workers, each at the other end of a pipe."""

    def __init__(self, job: Job, workers: int, shares: list[int], kin: list[Family]) -> None:
        # A fresh interpreter each: what this process has open or running is none of theirs.
        context = get_context("spawn")
        self._processes: dict[Connection, SpawnProcess] = {}
        with _deaf():
            for number in range(workers):
                ours, theirs = context.Pipe()
                process = context.Process(
                    target=_work, args=(theirs, job, number, workers, shares, kin), daemon=True
                )
                process.start()
                theirs.close()
                self._processes[ours] = process
        self._waiting = list(self._processes)

    def result(self, watch: Watch) -> _Result:
        """The next worker's result. Raises `WorkerError`."""
        while True:
            for ready in connection.wait(self._waiting):
                pipe = next(one for one in self._waiting if one is ready)
                told = self._heard(pipe)
                if isinstance(told, _Failure):
                    raise WorkerError(told.reason)
                if isinstance(told, _Result):
                    self._waiting.remove(pipe)
                    return told
                try:
                    watch(told.done, told.events)
                except StoppedError:
                    for one in self._waiting:
                        with suppress(OSError):  # it may have finished
                            one.send(None)

    def end(self) -> None:
        """Nobody waits any more: whoever is still at work stops."""
        for pipe, process in self._processes.items():
            pipe.close()
            if pipe in self._waiting:
                process.terminate()
            process.join()

    def _heard(self, pipe: Connection) -> _Told:
        try:
            told: _Told = pipe.recv()
        except EOFError:
            process = self._processes[pipe]
            process.join()
            raise WorkerError(f"a worker has died (exit code {process.exitcode})") from None
        return told


@contextmanager
def _deaf() -> Iterator[None]:
    """Processes that are started now do not hear the terminal's interrupt; they are told."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _shares(files: Sequence[Path], kin: Sequence[Family], workers: int, watch: Watch) -> list[int]:
    """Which worker reads a file; `_ALL` for one whose sessions they divide among them."""
    load = [0] * workers
    shares = [_ALL] * len(files)
    whole = []
    for family in kin:
        watch(0, 0)
        place, *others = family.places
        formats = {trace.format for trace in Reader().files(files[place])}
        total = sum(size(files[one]) for one in family.places)
        if _ORDERED in formats:
            shares[place] = 0
            load[0] += total
        elif others or formats != {FORMAT}:
            whole.append((-total, family.places))
    for less, places in sorted(whole):
        worker = load.index(min(load))
        for place in places:
            shares[place] = worker
        load[worker] -= less
    return shares


def _work(
    pipe: Connection, job: Job, number: int, workers: int, shares: list[int], kin: list[Family]
) -> None:
    """What a worker does. It tells how it goes, heeds what it is told, and gives its tally."""

    def watch(done: int, events: int) -> None:
        pipe.send(_Progress(done, events))
        if pipe.poll():
            raise StoppedError

    try:
        mine = (_ALL, number)
        part = Part(number, workers)
        walk = Walk(job, Loaded.of(job), part, lambda place: shares[place] in mine, watch, kin)
        pipe.send(_Result(number, *walk.through()))
    except (BrokenPipeError, EOFError, ConnectionResetError):
        return  # nobody waits any more
    except Exception as error:  # noqa: BLE001 - told to whoever waits, who raises it
        pipe.send(_Failure(f"a worker has failed: {type(error).__name__}: {error}"))
