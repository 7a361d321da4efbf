"""How much of a long test the default run tries."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import TypeVar

T = TypeVar("T")
THOROUGH = bool(os.environ.get("POLICYGUARD_THOROUGH"))
"""Whether this is `make test-all`."""


def examples(number: int) -> int:
    """Return `number` in `make test-all`, and a quarter of it in the default run."""
    return number if THOROUGH else max(10, number // 4)


def some(items: Iterable[T], every: int) -> list[T]:
    """Return all items in `make test-all`, and each `every`-th in the default run."""
    return [*items] if THOROUGH else [*items][::every]
