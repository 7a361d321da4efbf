"""Parts of a job for a cluster: whole session trees, or shards of one large file."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import msgspec

from policyguard.simulate.jobs.job import FoldWorker, Job, R, StartFold
from policyguard.simulate.jobs.line_shard import LineShard
from policyguard.simulate.jobs.reading_units import ReadingUnit, find_reading_units
from policyguard.traces.session_trees import SessionTree

_PARTS_PER_WORKER = 4
"""So that one slow part does not leave the other workers idle, and a lost one costs little."""


class Part(msgspec.Struct, frozen=True):
    """The trees of a part; with `shards`, the sessions of its one file with the number `shard`.

    `size` is in bytes.
    """

    trees: tuple[SessionTree, ...]
    size: int
    shard: int = 0
    shards: int = 1


def split(files: Sequence[Path], trees: Sequence[SessionTree], workers: int) -> list[Part]:
    """Return the parts of a job, the first ones first. Each tree is in one part, or in shards."""
    units = find_reading_units(files, trees)
    most = max(1, sum(unit.size for unit in units) // workers)
    parts: list[Part] = []
    whole: list[ReadingUnit] = []
    for unit in units:
        if unit.is_shared and unit.size > most and workers > 1:
            size = unit.size // workers
            parts += [Part(unit.trees, size, shard, workers) for shard in range(workers)]
        else:
            whole.append(unit)
    return parts + _pack(whole, sum(unit.size for unit in whole) // (workers * _PARTS_PER_WORKER))


def _pack(units: Sequence[ReadingUnit], target: int) -> list[Part]:
    """Put units together, in their order, until a part has its size."""
    parts: list[Part] = []
    taken: list[SessionTree] = []
    size = 0
    for unit in units:
        taken += unit.trees
        size += unit.size
        if size >= target:
            parts.append(Part(tuple(taken), size))
            taken, size = [], 0
    if taken:
        parts.append(Part(tuple(taken), size))
    return parts


def fold_part(start: StartFold[R], job: Job, part: Part) -> R:
    """Fold a part in a worker of a cluster, which reports when it is done."""
    shard = LineShard(part.shard, part.shards)
    return FoldWorker(start, job, None, shard, lambda *_: None).run(part.trees)[0]
