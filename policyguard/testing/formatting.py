"""Calls and values in the words of a report."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from policyguard.evaluator.session_state import PROGRESSING


def format_call(call: Mapping[str, Mapping[str, Any] | str]) -> str:
    """A call as a test writes it: `read_file {"path": "a"}`."""
    ((tool, given),) = call.items()
    return f"{tool} {json.dumps(given, ensure_ascii=False)}"


def format_value(value: Any) -> str:
    """A value as a test writes it; text in backticks."""
    return f"`{value}`" if isinstance(value, str) else json.dumps(value)


def format_state(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Format a session's state for a reader: times with their unit, without the obvious."""
    shown = {**fields}
    if shown.get("progress") == PROGRESSING:
        del shown["progress"]
    if "elapsed" in shown:
        shown["elapsed"] = f"{shown['elapsed'] / 1e9:g}s" if shown["elapsed"] else ""
    return shown
