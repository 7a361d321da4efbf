"""From the tamest to the boldest: candidates in the order in which they are to be tested.

All of this looks at the runs to explore with alone. A session is a bit; what an entry refuses is a
mask of sessions, and entries refuse independently of each other where nothing is acted upon
(observe mode), so that a combination refuses what any of its entries does. That is only how
candidates are found: each one that is put forward is replayed as a whole.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

Combination = tuple[int, ...]
"""For each axis the place of an option; 0 is what the policy has."""


class ExploredSpace(NamedTuple):
    """What the sweep has shown: for each axis and option, the sessions that it refuses.

    `others` are refused by entries that are on no axis. `good` and `bad` are the sessions that
    succeeded and failed.
    """

    masks: Sequence[Sequence[int]]
    refused_elsewhere: int
    succeeded: int
    failed: int

    def refused(self, combination: Combination) -> int:
        """The sessions that a combination refuses."""
        mask = self.refused_elsewhere
        for axis, option in enumerate(combination):
            mask |= self.masks[axis][option]
        return mask

    def harm(self, mask: int) -> int:
        """How many of them succeeded."""
        return (mask & self.succeeded).bit_count()

    def catch(self, mask: int) -> int:
        """How many of them failed."""
        return (mask & self.failed).bit_count()


def build_path(explored: ExploredSpace, max_harmed: int) -> list[Combination]:
    """Candidates that refuse at most `most_harmed` successful sessions, the tamest first.

    It leads from the loosest settings over the policy as it stands, if it harms no more than that,
    to those that catch the most, in steps as small as there are. Where all harm more, the one that
    harms least is all there is.
    """
    base: Combination = (0,) * len(explored.masks)
    down = [base, *_loosen(explored, base)]
    harms = [explored.harm(explored.refused(one)) for one in down]
    start = next((place for place, harm in enumerate(harms) if harm <= max_harmed), None)
    if start is None:
        return [down[-1]]
    found = [*reversed(down[start:]), *_tighten(explored, down[start], max_harmed)]
    loosest = _drop_useless_changes(explored, _loosest(explored))
    mask, first = explored.refused(loosest), explored.refused(found[0])
    if mask & ~first == 0:  # it refuses nothing that the first does not
        found = [loosest, *found]
    by_mask = {explored.refused(one): one for one in reversed(found)}
    return [one for one in dict.fromkeys(found) if by_mask[explored.refused(one)] == one]


def _loosen(explored: ExploredSpace, start: Combination) -> Iterator[Combination]:
    """Step by step to less harm, at the least cost in catch."""
    now = start
    while True:
        mask = explored.refused(now)
        harm, catch = explored.harm(mask), explored.catch(mask)
        best: tuple[tuple[float, int], Combination] | None = None
        for one in _neighbours(explored, now):
            other = explored.refused(one)
            less = harm - explored.harm(other)
            if less > 0:
                key = ((catch - explored.catch(other)) / less, _distance(one))
                best = min(best or (key, one), (key, one))
        if best is None:
            return
        now = best[1]
        yield now


def _tighten(explored: ExploredSpace, start: Combination, max_harmed: int) -> Iterator[Combination]:
    """Step by step to more catch: on each axis the smallest step, and among those the safest."""
    now = start
    while True:
        mask = explored.refused(now)
        harm, catch = explored.harm(mask), explored.catch(mask)
        best: tuple[tuple[int, int, int, int], Combination] | None = None
        for axis in range(len(now)):
            steps = []
            for one in _neighbours(explored, now, axis):
                other = explored.refused(one)
                gain, more = explored.catch(other) - catch, explored.harm(other) - harm
                if gain > 0 and harm + more <= max_harmed:
                    steps.append((more, gain, one[axis], one))
            if steps:
                more, gain, option, one = min(steps)
                key = (more, _next_harm(explored, axis, option), -gain, _distance(one))
                best = min(best or (key, one), (key, one))
        if best is None:
            return
        now = _drop_useless_changes(explored, best[1])
        yield now


def _next_harm(explored: ExploredSpace, axis: int, option: int) -> int:
    """How near to harm an option is: what the next tighter one on its axis would harm."""
    mine = explored.masks[axis][option]
    tighter = [mask for mask in explored.masks[axis] if mask.bit_count() > mine.bit_count()]
    nearest = min(tighter, key=int.bit_count, default=mine)
    return explored.harm(nearest)


def _loosest(explored: ExploredSpace) -> Combination:
    """On each axis what refuses the fewest sessions, and among those what is nearest to now."""
    return tuple(
        min(range(len(masks)), key=lambda option: (masks[option].bit_count(), option))
        for masks in explored.masks
    )


def _drop_useless_changes(explored: ExploredSpace, combination: Combination) -> Combination:
    """The same with no change that changes nothing."""
    mask = explored.refused(combination)
    for axis, option in enumerate(combination):
        if option:
            without = (*combination[:axis], 0, *combination[axis + 1 :])
            if explored.refused(without) == mask:
                combination = without
    return combination


def _neighbours(
    explored: ExploredSpace, combination: Combination, only: int | None = None
) -> Iterator[Combination]:
    """What differs on one axis."""
    for axis, masks in enumerate(explored.masks):
        if only is None or axis == only:
            for option in range(len(masks)):
                if option != combination[axis]:
                    yield (*combination[:axis], option, *combination[axis + 1 :])


def _distance(combination: Combination) -> int:
    """How far it is from the policy as it stands: options are in the order of their distance."""
    return sum(combination)
