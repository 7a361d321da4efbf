"""A replay of many files, by one process or by several: the same report to the byte."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol

import msgspec

from policyguard.compiler import Compiled
from policyguard.report.figures import Figures
from policyguard.simulate.labels import Labels
from policyguard.simulate.part import Part
from policyguard.simulate.replay import Replay, load
from policyguard.simulate.tally import Keep, Tally
from policyguard.traces import Reader
from policyguard.traces.family import Family, families


class Job(msgspec.Struct, frozen=True, kw_only=True):
    """What is to be replayed: plain values, so that it can be handed to another process.

    `policies` and `baseline` are as `load` takes them; no baseline where it is empty.
    """

    policies: tuple[str, ...]
    baseline: tuple[str, ...] = ()
    observe: bool = False
    labels: Path | None = None
    files: tuple[Path, ...] = ()
    keep: Keep = Keep()


class Loaded(msgspec.Struct, frozen=True):
    """What a job's policies and labels are once they are read."""

    policy: Compiled
    baseline: Compiled | None
    labels: Labels | None

    @classmethod
    def of(cls, job: Job) -> Loaded:
        """Read them. Raises `PolicyError`, `LabelError`."""
        return cls(
            load(job.policies),
            load(job.baseline) if job.baseline else None,
            Labels.read(job.labels) if job.labels is not None else None,
        )


class StoppedError(Exception):
    """Somebody has asked to stop; what was read until then is counted."""


class Watch(Protocol):
    """Whoever watches a replay, and may stop it."""

    def __call__(self, done: int, events: int) -> None:
        """So many bytes and events more have been read. Raises `StoppedError` to stop."""
        ...


class Walk:
    """One process's walk through its share of a job's files.

    `mine` says which files (by their place in the job) are to be read here: of a family all, or
    none. `kin` are the job's files by family, which are found out where they are not given.
    """

    def __init__(
        self,
        job: Job,
        loaded: Loaded,
        part: Part,
        mine: Callable[[int], bool],
        watch: Watch,
        kin: Sequence[Family] | None = None,
    ) -> None:
        self._job = job
        self._mine = mine
        self._kin = kin
        self._part = part
        self._watch = watch
        self._whole = self._told = self._told_events = 0
        self._replay = Replay(
            loaded.policy,
            observe=job.observe,
            labels=loaded.labels,
            baseline=loaded.baseline,
            keep=job.keep,
            heed=self._heed,
            part=part,
        )

    def through(self) -> tuple[Tally, bool]:
        """Replay them all. Returns what they amount to, and whether that is only a part of it."""
        reader = Reader(self._part)
        try:
            kin = families(self._job.files, self._heed) if self._kin is None else self._kin
            for family in kin:
                if self._mine(family.places[0]):
                    self._family(reader, family)
        except StoppedError:
            return self._replay.stop(), True
        return self._replay.stop(), False

    def _family(self, reader: Reader, family: Family) -> None:
        files, before = self._job.files, self._part.bytes
        place, *others = family.places
        if others:
            self._replay.add_family(reader, files, family)
            self._heed()
        else:
            for member, trace in enumerate(reader.files(files[place])):
                self._replay.add(trace, (place, member))
                self._heed()
        if self._part.bytes == before:
            self._whole += sum(size(files[place]) for place in family.places)

    def _heed(self) -> None:
        done, events = self._whole + self._part.bytes, self._replay.events
        more, more_events = done - self._told, events - self._told_events
        self._told, self._told_events = done, events
        self._watch(more, more_events)


def run(job: Job, loaded: Loaded, watch: Watch) -> Figures:
    """Replay a job in this process."""
    tally, partial = Walk(job, loaded, Part(), lambda place: True, watch).through()
    return concluded(job, loaded, [tally], partial=partial)


def concluded(job: Job, loaded: Loaded, tallies: Sequence[Tally], *, partial: bool) -> Figures:
    """The report of a job whose parts amount to `tallies`."""
    first, *others = tallies
    for tally in others:
        first.merge(tally)
    figures = first.conclude(loaded.labels, partial=partial)
    figures.traces.given = len(job.files)
    return figures


def size(file: Path) -> int:
    """Bytes of a file, 0 where that cannot be told."""
    try:
        return file.stat().st_size
    except OSError:
        return 0
