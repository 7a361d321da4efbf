"""Conversion of a call's recorded arguments into an object."""

from __future__ import annotations

from typing import Any

from policyguard.traces.parsing.json_text import try_decode


def as_arguments(raw: object) -> dict[str, Any]:
    """Return arguments given as an object or as its JSON text.

    Anything else is kept whole under `arguments`: the model made this call, and a policy may want
    to inspect it. None and empty text mean no arguments.
    """
    if isinstance(raw, dict):
        return raw
    if raw is None or raw == "":
        return {}
    parsed = try_decode(raw) if isinstance(raw, str) else None
    return parsed if isinstance(parsed, dict) else {"arguments": raw}
