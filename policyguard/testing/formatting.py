"""Calls, values and session states as text for reports."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from policyguard.evaluator.session_state import PROGRESSING


def format_call(call: Mapping[str, Mapping[str, Any] | str]) -> str:
    """Format a call as in a test: `read_file {"path": "a"}`."""
    ((tool, args),) = call.items()
    return f"{tool} {json.dumps(args, ensure_ascii=False)}"


def format_value(value: Any) -> str:
    """Format a value as in a test; text in backticks."""
    return f"`{value}`" if isinstance(value, str) else json.dumps(value)


def format_state(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Format a session's state for a reader: times with their unit, without the obvious."""
    shown = {**fields}
    if shown.get("progress") == PROGRESSING:
        del shown["progress"]
    if "elapsed" in shown:
        shown["elapsed"] = f"{shown['elapsed'] / 1e9:g}s" if shown["elapsed"] else ""
    return shown
