"""`distinct`: how many different values a budget has seen, without the values."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from policyguard.model.errors import ExpressionError

VALUE_MARK = "\x1f\x1d"
"""Between the key of a usage and the digest of a value, in the key of a charge."""


class DistinctValues(msgspec.Struct, eq=False):
    """The digests of values that count, each with its uses and the time of the last (ns).

    At most `max_values` are kept: a budget allows no more, so that beyond them any new one exceeds
    it.
    """

    uses: dict[str, tuple[int, int | None]] = msgspec.field(default_factory=dict)

    def has(self, value: str, at: int | None, within: int | None) -> bool:
        """Whether a value counts at `at`."""
        found = self.uses.get(value)
        return found is not None and not _is_over(found[1], at, within)

    def count(self, at: int | None, within: int | None) -> int:
        """Return how many values count at `at`."""
        if within is None:
            return len(self.uses)
        return sum(not _is_over(last, at, within) for _, last in self.uses.values())

    def add(self, value: str, at: int | None, within: int | None, max_values: int) -> None:
        """Count one more use of a value."""
        uses, last = self.uses.get(value, (0, None))
        if not uses and len(self.uses) >= max_values:
            self.uses = {
                one: use for one, use in self.uses.items() if not _is_over(use[1], at, within)
            }
            if len(self.uses) >= max_values:
                return
        latest = last if at is None or (last is not None and last > at) else at
        self.uses[value] = uses + 1, latest

    def copy(self) -> DistinctValues:
        """Return an independent copy."""
        return DistinctValues(dict(self.uses))

    def remove(self, value: str) -> None:
        """Take back one use of a value, whose call did not run."""
        uses, last = self.uses.get(value, (0, None))
        if uses > 1:
            self.uses[value] = uses - 1, last
        else:
            self.uses.pop(value, None)


def _is_over(last: int | None, at: int | None, within: int | None) -> bool:
    return within is not None and at is not None and last is not None and last <= at - within


def digest_values(found: Any, digest: Callable[[str], str]) -> tuple[str, ...]:
    """Return the digests of the values that an expression gives: one, or those in a list.

    Raises `ExpressionError` for a value that is not text, a number, a bool or null.
    """
    values = found if isinstance(found, list | tuple) else (found,)
    return tuple(dict.fromkeys(digest(_format(value)) for value in values))


def _format(value: Any) -> str:
    if value is None or isinstance(value, bool):
        return f"={value}"
    if isinstance(value, str):
        return f"'{value}"
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, int | float):
        return f"={value}"
    raise ExpressionError("a value of `distinct` is not text, a number or a bool")
