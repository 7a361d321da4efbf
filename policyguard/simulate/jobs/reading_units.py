"""Which files of a job one process must read, and which several may share."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import msgspec

from policyguard.simulate.jobs.job import file_size
from policyguard.traces import Reader
from policyguard.traces.containers.unpack import UnreadableContent, unpack
from policyguard.traces.containers.zip import ZipArchive
from policyguard.traces.formats import native, tau2
from policyguard.traces.item import UnreadableError
from policyguard.traces.session_trees import SessionTree

_SEARCHED_BYTES = 1 << 26
_ANY_RUN = frozenset({""})
"""Instead of the ids of a file's runs: it may have any."""

SizedTree = tuple[SessionTree, int]
"""A tree, and the size of its files in bytes."""


class ReadingUnit(msgspec.Struct, frozen=True):
    """Trees that one process must read, in this order; `size` in bytes.

    If `is_shared`, it is one file, of whose sessions each process may read some.
    """

    trees: tuple[SessionTree, ...]
    size: int
    is_shared: bool = False


def measure_trees(files: Sequence[Path], trees: Iterable[SessionTree]) -> list[SizedTree]:
    """Return trees with their sizes."""
    return [(tree, sum(file_size(files[index]) for index in tree.indices)) for tree in trees]


def find_reading_units(files: Sequence[Path], trees: Sequence[SessionTree]) -> list[ReadingUnit]:
    """Return the units of a job, in the order of their first trees."""
    looked_at = iter_reading_units(files, measure_trees(files, trees))
    units = [unit for unit in looked_at if unit is not None]
    return sorted(units, key=lambda unit: min(unit.trees[0].indices))


def iter_reading_units(
    files: Sequence[Path], trees: Iterable[SizedTree]
) -> Iterator[ReadingUnit | None]:
    """Look at one tree after the other, and yield its unit, or None if that is not known yet.

    Of runs of tau2 that are in several files only the first in order counts, so these files are one
    unit. The units with such runs come last.
    """
    with_runs: list[tuple[ReadingUnit, frozenset[str]]] = []
    for tree, size in trees:
        file = files[tree.indices[0]] if len(tree.indices) == 1 and size else None
        if file is not None and tree.has_events is not False and _has_own_format(file):
            yield ReadingUnit((tree,), size, is_shared=True)
            continue
        unit = ReadingUnit((tree,), size)
        ids = _find_run_ids(file) if file is not None else frozenset()
        if ids:
            with_runs.append((unit, ids))
        yield None if ids else unit
    yield from _join_units(sorted(with_runs, key=lambda one: one[0].trees[0].indices))


def _join_units(units: Sequence[tuple[ReadingUnit, frozenset[str]]]) -> Iterator[ReadingUnit]:
    """Join units that have a run in common."""
    if any(ids == _ANY_RUN for _, ids in units):
        units = [(unit, _ANY_RUN) for unit, _ in units]
    joined: dict[int, list[int]] = {}
    owners: dict[str, int] = {}
    for index, (_, ids) in enumerate(units):
        members = [index]
        for owner in sorted({owners[run] for run in ids if run in owners}):
            members += joined.pop(owner)
        joined[index] = members
        for member in members:
            owners.update(dict.fromkeys(units[member][1], index))
    for members in joined.values():
        together = [units[index][0] for index in sorted(members)]
        trees = tuple(tree for unit in together for tree in unit.trees)
        yield ReadingUnit(trees, sum(unit.size for unit in together))


def _has_own_format(file: Path) -> bool:
    """Whether all that is in a file is in policyguard's own format, as a reader will see it."""
    return {trace.format for trace in Reader().iter_files(file)} == {native.FORMAT}


def _find_run_ids(file: Path) -> frozenset[str]:
    """Return the ids of the runs of tau2 in a file."""
    content = next(unpack(file, lambda archive: True), None)
    if content is None or isinstance(content, UnreadableContent):
        return frozenset()
    if not isinstance(content, ZipArchive) and content.path == file:
        try:
            with content.open_preview() as opened:
                ids = tau2.find_ids(opened, _SEARCHED_BYTES)
        except (OSError, UnreadableError):
            return frozenset()  # which its reader reports
        if ids is not None:
            return ids
    formats = {trace.format for trace in Reader().iter_files(file)}
    return _ANY_RUN if tau2.FORMAT in formats else frozenset()
