"""Which runs are for finding candidates, and which for testing them."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b


def split_runs(
    names: Sequence[str], seed: int, min_held_out: int
) -> tuple[frozenset[int], frozenset[int]]:
    """Places of the runs to explore with, and of those held out.

    By lot, the same for the same names and `seed`. Half are held out; where half is less than
    `enough`, so many as that, unless it leaves less than a quarter to explore with.
    """
    count = len(names)
    held = count - count // 2
    if held < min_held_out <= count - count // 4:
        held = min_held_out
    order = sorted(range(count), key=lambda place: (_shuffle_key(names[place], seed), place))
    return frozenset(order[held:]), frozenset(order[:held])


def _shuffle_key(name: str, seed: int) -> bytes:
    return blake2b(f"{seed}\n{name}".encode("utf-8", "surrogatepass"), digest_size=16).digest()
