"""The usage of a shared budget as databases hold it: JSON, where integers have any size."""

from __future__ import annotations

from collections import deque
from pathlib import Path

import msgspec

from policyguard.evaluator.budgets.usage import AheadCharge, BudgetUsage
from policyguard.store.errors import DECODE_ERRORS, damaged_error


class _StoredUsage(msgspec.Struct, array_like=True, omit_defaults=True):
    used: int
    granted: int
    started_at: int | None
    latest_at: int | None
    charges: list[tuple[int, int]] | None
    ahead: tuple[AheadCharge, ...] = ()


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(_StoredUsage).decode


def encode_usage(usage: BudgetUsage) -> bytes:
    """Return a usage as it is stored."""
    charges = list(usage.charges) if usage.charges is not None else None
    return _encode(
        _StoredUsage(
            usage.used, usage.granted, usage.started_at, usage.latest_at, charges, usage.ahead
        )
    )


def decode_usage(store: Path, data: bytes) -> BudgetUsage:
    """Return a stored usage. Raises `StoreError`, which names the store, if it is damaged."""
    try:
        stored = _decode(data)
    except DECODE_ERRORS as error:
        raise damaged_error(store, "a shared budget", error) from None
    return BudgetUsage(
        used=stored.used,
        granted=stored.granted,
        started_at=stored.started_at,
        latest_at=stored.latest_at,
        charges=deque(stored.charges) if stored.charges is not None else None,
        ahead=stored.ahead,
    )
