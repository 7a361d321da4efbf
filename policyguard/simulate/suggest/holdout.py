"""The split of runs into those for exploration and those held out."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b


def split_runs(
    names: Sequence[str], seed: int, min_held_out: int
) -> tuple[frozenset[int], frozenset[int]]:
    """Return the indices of the runs to explore with, and of those held out.

    The split is random but the same for the same names and `seed`. Half are held out; if that is
    less than `min_held_out`, then that many, unless less than a quarter remains to explore with.
    """
    count = len(names)
    held_out = count - count // 2
    if held_out < min_held_out <= count - count // 4:
        held_out = min_held_out
    order = sorted(range(count), key=lambda index: (_shuffle_key(names[index], seed), index))
    return frozenset(order[held_out:]), frozenset(order[:held_out])


def _shuffle_key(name: str, seed: int) -> bytes:
    return blake2b(f"{seed}\n{name}".encode("utf-8", "surrogatepass"), digest_size=16).digest()
