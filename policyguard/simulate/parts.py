"""Parts of a job for a cluster: whole session trees, or shards of one large file."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import msgspec

from policyguard.simulate.job import FoldWorker, Job, R, StartFold, file_size
from policyguard.simulate.line_shard import LineShard
from policyguard.simulate.workers import ORDERED_FORMAT, find_formats
from policyguard.traces.formats.native import FORMAT
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
    sizes = [sum(file_size(files[index]) for index in tree.indices) for tree in trees]
    most = max(1, sum(sizes) // workers)
    parts: list[Part] = []
    ordered: list[tuple[SessionTree, int]] = []
    whole: list[tuple[SessionTree, int]] = []
    for tree, size in zip(trees, sizes, strict=True):
        formats = find_formats(files[tree.indices[0]]) if size > 0 else set()
        if ORDERED_FORMAT in formats:
            ordered.append((tree, size))
        elif size > most and len(tree.indices) == 1 and formats == {FORMAT} and workers > 1:
            parts += [Part((tree,), size // workers, one, workers) for one in range(workers)]
        else:
            whole.append((tree, size))
    parts += _pack(ordered, sum(sizes) + 1)
    parts += _pack(whole, sum(size for _, size in whole) // (workers * _PARTS_PER_WORKER))
    return parts


def _pack(trees: Sequence[tuple[SessionTree, int]], target: int) -> list[Part]:
    """Put trees together, in their order, until a part has its size."""
    parts: list[Part] = []
    taken: list[SessionTree] = []
    size = 0
    for tree, tree_size in trees:
        taken.append(tree)
        size += tree_size
        if size >= target:
            parts.append(Part(tuple(taken), size))
            taken, size = [], 0
    if taken:
        parts.append(Part(tuple(taken), size))
    return parts


def fold_part(start: StartFold[R], job: Job, part: Part) -> R:
    """Fold a part in a worker of a cluster, which reports when it is done."""
    shard = LineShard(part.shard, part.shards)
    return FoldWorker(start, job, None, shard, lambda _: True, lambda *_: None, part.trees).run()[0]
