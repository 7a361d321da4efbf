"""Whether one name can match two globs."""

from __future__ import annotations


def overlap(one: str, other: str) -> bool:
    """Whether there is a text that both globs match; `*` is any text, `?` one character.

    Takes time and space of the two lengths multiplied.
    """
    waiting = [(0, 0)]
    seen = set(waiting)
    while waiting:
        i, j = waiting.pop()
        left, right = one[i : i + 1], other[j : j + 1]
        if not left and not right:
            return True
        steps = []
        if left == "*":
            steps += [(i + 1, j), (i, j + 1)] if right else [(i + 1, j)]
        if right == "*":
            steps += [(i, j + 1), (i + 1, j)] if left else [(i, j + 1)]
        if left and right and (left == right or "?" in (left, right)):
            steps.append((i + 1, j + 1))
        fresh = [step for step in steps if step not in seen]
        seen.update(fresh)
        waiting += fresh
    return False
