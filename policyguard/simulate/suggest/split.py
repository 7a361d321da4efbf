"""Which runs are for finding candidates, and which for testing them."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b


def split(names: Sequence[str], seed: int, enough: int) -> tuple[frozenset[int], frozenset[int]]:
    """Places of the runs to explore with, and of those held out.

    By lot, the same for the same names and `seed`. Half are held out; where half is less than
    `enough`, so many as that, unless it leaves less than a quarter to explore with.
    """
    count = len(names)
    held = count - count // 2
    if held < enough <= count - count // 4:
        held = enough
    order = sorted(range(count), key=lambda place: (_lot(names[place], seed), place))
    return frozenset(order[held:]), frozenset(order[:held])


def _lot(name: str, seed: int) -> bytes:
    return blake2b(f"{seed}\n{name}".encode("utf-8", "surrogatepass"), digest_size=16).digest()
