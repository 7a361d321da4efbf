"""How many examples the property tests try."""

from __future__ import annotations

import os

THOROUGH = bool(os.environ.get("POLICYGUARD_THOROUGH"))
"""Whether this is `make test-all`."""


def examples(number: int) -> int:
    """Return `number` in `make test-all`, and a quarter of it in the default run."""
    return number if THOROUGH else max(10, number // 4)
