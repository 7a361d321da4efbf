"""Results of OpenHands calls, from their observations."""

from __future__ import annotations

from typing import Any

from policyguard.model.event import Provenance
from policyguard.traces.parsing.json_shape import as_exit_code, as_object
from policyguard.traces.parsing.json_text import try_decode
from policyguard.traces.parsing.message_content import as_text
from policyguard.traces.session_builder import ImportedResult

_NON_RESULTS = ("agent_state_changed", "recall", "think", "condense", "null")
"""Observations that are not results of calls."""

STILL_RUNNING = -1
"""The exit code of a command that OpenHands no longer waits for."""

_FAILURE_KINDS = ("error", "user_rejected")
_FILE_KINDS = ("read", "edit", "write")
_FILE_ERROR_PREFIX = "ERROR:"


def is_result(event: dict[str, Any]) -> bool:
    """Return whether an event is an observation that may answer a call."""
    kind = event.get("observation")
    return isinstance(kind, str) and kind not in _NON_RESULTS


def parse_result(event: dict[str, Any], call: str, at: int | None) -> ImportedResult:
    """Return the result in a call's observation."""
    text = as_text(event.get("content"))
    extras = as_object(event.get("extras"))
    code = find_exit_code(as_object(extras.get("metadata")), extras, event)
    if code == STILL_RUNNING:
        return ImportedResult(call, text, at=at, state="pending")
    ok, provenance = _parse_outcome(event, text, code)
    return ImportedResult(call, text, ok, provenance, at, exit_code=code)


def _parse_outcome(
    event: dict[str, Any], text: str, code: int | None
) -> tuple[bool | None, Provenance]:
    kind = event.get("observation")
    if kind in _FAILURE_KINDS:
        return False, "explicit"
    if code is not None:
        return code == 0, "explicit"
    if kind == "mcp":
        failed = _mcp_error_flag(text)
        return (None, "unknown") if failed is None else (not failed, "explicit")
    error = as_object(event.get("extras")).get("error")
    if isinstance(error, bool):
        return not error, "explicit"
    if kind in _FILE_KINDS:
        return not text.startswith(_FILE_ERROR_PREFIX), "inferred"
    return None, "unknown"


def find_exit_code(*holders: dict[str, Any]) -> int | None:
    """Return the first exit code; its position depends on the version."""
    codes = (as_exit_code(holder.get("exit_code")) for holder in holders)
    return next((code for code in codes if code is not None), None)


def _mcp_error_flag(text: str) -> bool | None:
    flag = as_object(try_decode(text)).get("isError")
    return flag if isinstance(flag, bool) else None
