"""How much of a long test the default run tries."""

from __future__ import annotations

import os
from collections.abc import Container, Iterable
from typing import Any, TypeVar

import pytest

T = TypeVar("T")
THOROUGH = bool(os.environ.get("POLICYGUARD_THOROUGH"))
"""Whether this is `make test-all`."""


def examples(number: int, share: int = 4) -> int:
    """Return `number` in `make test-all`, and one in `share` of it in the default run."""
    return number if THOROUGH else max(10, number // share)


def some(items: Iterable[T], every: int) -> list[T]:
    """Return all items in `make test-all`, and each `every`-th in the default run."""
    return [*items] if THOROUGH else [*items][::every]


def slow_but(kept: Container[T], items: Iterable[T]) -> list[Any]:
    """Return `items` as parameters of a test; those not in `kept` run with `make test-all` only."""
    return [item if item in kept else pytest.param(item, marks=pytest.mark.slow) for item in items]
