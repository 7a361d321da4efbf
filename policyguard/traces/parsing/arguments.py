"""The arguments of a call, however a format writes them → an object."""

from __future__ import annotations

from typing import Any

from policyguard.traces.parsing.json_text import JsonError, decode


def as_arguments(raw: object) -> dict[str, Any]:
    """Arguments from an object, or from the JSON text of one.

    What is neither is kept whole under `arguments`: the model did make this call, and what it
    said is what a policy may want to look at. None and empty text are no arguments.
    """
    if isinstance(raw, dict):
        return raw
    if raw is None or raw == "":
        return {}
    parsed = _try_decode(raw) if isinstance(raw, str) else None
    return parsed if isinstance(parsed, dict) else {"arguments": raw}


def _try_decode(text: str) -> object:
    try:
        return decode(text)
    except JsonError:
        return None
