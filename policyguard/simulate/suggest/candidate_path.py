"""The path of candidates to test, from the most cautious to the most aggressive.

It uses only the exploration runs. Each session is a bit, and what an entry refuses is a mask of
sessions. In observe mode entries refuse independently of each other, so a combination refuses what
any of its entries refuses. This only finds candidates, which are then tested.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

Combination = tuple[int, ...]
"""The index of an option on each axis; 0 is the policy's own."""


class ExploredSpace(NamedTuple):
    """The result of the sweep: the sessions that each option of each axis refuses.

    `refused_elsewhere` are refused by entries on no axis. `succeeded` and `failed` are the
    sessions by outcome. All are bit masks.
    """

    masks: Sequence[Sequence[int]]
    refused_elsewhere: int
    succeeded: int
    failed: int

    def refused(self, combination: Combination) -> int:
        """Return the mask of sessions that a combination refuses."""
        mask = self.refused_elsewhere
        for axis, option in enumerate(combination):
            mask |= self.masks[axis][option]
        return mask

    def harm(self, mask: int) -> int:
        """Count the successful sessions of a mask."""
        return (mask & self.succeeded).bit_count()

    def catch(self, mask: int) -> int:
        """Count the failed sessions of a mask."""
        return (mask & self.failed).bit_count()


def build_path(explored: ExploredSpace, max_harmed: int) -> list[Combination]:
    """Return candidates that refuse at most `max_harmed` successful sessions, loosest first.

    The path leads from the loosest settings through the policy as it stands, if it harms few
    enough, to those that catch the most, in the smallest steps. If every candidate harms more, the
    path is only the one that harms least.
    """
    base: Combination = (0,) * len(explored.masks)
    down = [base, *_loosen(explored, base)]
    harms = [explored.harm(explored.refused(combination)) for combination in down]
    start = next((index for index, harm in enumerate(harms) if harm <= max_harmed), None)
    if start is None:
        return [down[-1]]
    path = [*reversed(down[start:]), *_tighten(explored, down[start], max_harmed)]
    loosest = _drop_useless_changes(explored, _loosest(explored))
    if explored.refused(loosest) & ~explored.refused(path[0]) == 0:  # it refuses nothing else
        path = [loosest, *path]
    first_by_mask = {explored.refused(combination): combination for combination in reversed(path)}
    return list(dict.fromkeys(first_by_mask[explored.refused(combination)] for combination in path))


def _loosen(explored: ExploredSpace, start: Combination) -> Iterator[Combination]:
    """Yield steps to less harm, each at the lowest cost in catch."""
    now = start
    while True:
        mask = explored.refused(now)
        harm, catch = explored.harm(mask), explored.catch(mask)
        best: tuple[tuple[float, int], Combination] | None = None
        for neighbour in _neighbours(explored, now):
            mask = explored.refused(neighbour)
            saved = harm - explored.harm(mask)
            if saved > 0:
                key = ((catch - explored.catch(mask)) / saved, _distance(neighbour))
                best = min(best or (key, neighbour), (key, neighbour))
        if best is None:
            return
        now = best[1]
        yield now


def _tighten(explored: ExploredSpace, start: Combination, max_harmed: int) -> Iterator[Combination]:
    """Yield steps to more catch: the smallest on each axis, and the safest among those."""
    now = start
    while True:
        mask = explored.refused(now)
        harm, catch = explored.harm(mask), explored.catch(mask)
        best: tuple[tuple[int, int, int, int], Combination] | None = None
        for axis in range(len(now)):
            steps = []
            for neighbour in _neighbours(explored, now, axis):
                mask = explored.refused(neighbour)
                gain, cost = explored.catch(mask) - catch, explored.harm(mask) - harm
                if gain > 0 and harm + cost <= max_harmed:
                    steps.append((cost, gain, neighbour[axis], neighbour))
            if steps:
                cost, gain, option, neighbour = min(steps)
                key = (cost, _next_harm(explored, axis, option), -gain, _distance(neighbour))
                best = min(best or (key, neighbour), (key, neighbour))
        if best is None:
            return
        now = _drop_useless_changes(explored, best[1])
        yield now


def _next_harm(explored: ExploredSpace, axis: int, option: int) -> int:
    """Return the harm of the next tighter option on an axis: how close an option is to harm."""
    current = explored.masks[axis][option]
    tighter = [mask for mask in explored.masks[axis] if mask.bit_count() > current.bit_count()]
    nearest = min(tighter, key=int.bit_count, default=current)
    return explored.harm(nearest)


def _loosest(explored: ExploredSpace) -> Combination:
    """Combine the options that refuse the fewest sessions, and of those the nearest ones."""
    return tuple(
        min(range(len(masks)), key=lambda option: (masks[option].bit_count(), option))
        for masks in explored.masks
    )


def _drop_useless_changes(explored: ExploredSpace, combination: Combination) -> Combination:
    """Undo the changes of a combination that make no difference."""
    mask = explored.refused(combination)
    for axis, option in enumerate(combination):
        if option:
            without = (*combination[:axis], 0, *combination[axis + 1 :])
            if explored.refused(without) == mask:
                combination = without
    return combination


def _neighbours(
    explored: ExploredSpace, combination: Combination, only_axis: int | None = None
) -> Iterator[Combination]:
    """Yield the combinations that differ on one axis."""
    for axis, masks in enumerate(explored.masks):
        if only_axis is None or axis == only_axis:
            for option in range(len(masks)):
                if option != combination[axis]:
                    yield (*combination[:axis], option, *combination[axis + 1 :])


def _distance(combination: Combination) -> int:
    """Return the distance from the policy as it stands; options are ordered by distance."""
    return sum(combination)
