"""What a call has used, by the metadata of its result."""

from __future__ import annotations

import math
from typing import Any

from policyguard.model.policy import ResultMeta

_MAX_TOKENS = 2**53


def read_usage(meta: dict[str, Any], keys: ResultMeta) -> dict[str, Any]:
    """Return the `tokens` and `cost` of a result, under the keys that the policy names.

    The tool says them, so what is no amount (negative, infinite, a text) is left out.
    """
    usage: dict[str, Any] = {}
    tokens = next((meta[key] for key in keys.tokens if _is_amount(meta.get(key))), None)
    if tokens is not None and tokens <= _MAX_TOKENS:
        usage["tokens"] = math.ceil(tokens)
    cost = next((meta[key] for key in keys.cost if _is_amount(meta.get(key))), None)
    if cost is not None:
        usage["cost"] = float(cost)
    return usage


def _is_amount(value: object) -> bool:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return False
    try:
        return math.isfinite(value) and value >= 0
    except OverflowError:
        return False
