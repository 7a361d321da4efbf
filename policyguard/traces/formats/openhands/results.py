"""What an OpenHands observation says of its call."""

from __future__ import annotations

from typing import Any

from policyguard.model.event import Provenance
from policyguard.traces.parsing.json_shape import as_object
from policyguard.traces.parsing.json_text import JsonError, decode
from policyguard.traces.parsing.message_content import as_text
from policyguard.traces.session_builder import ImportedResult

_NON_RESULTS = ("agent_state_changed", "recall", "think", "condense", "null")
"""Observations that answer no call."""

STILL_RUNNING = -1
"""The exit code of a command that was not waited for any longer."""

_FAILURE_KINDS = ("error", "user_rejected")
_FILE_KINDS = ("read", "edit", "write")
_FILE_ERROR_PREFIX = "ERROR:"


def is_result(event: dict[str, Any]) -> bool:
    """Whether an event is an observation that may answer a call."""
    kind = event.get("observation")
    return isinstance(kind, str) and kind not in _NON_RESULTS


def parse_result(event: dict[str, Any], call: str, at: int | None) -> ImportedResult:
    """The observation of a call."""
    text = as_text(event.get("content"))
    extras = as_object(event.get("extras"))
    code = find_exit_code(as_object(extras.get("metadata")), extras, event)
    if code == STILL_RUNNING:
        return ImportedResult(call, text, at=at, is_pending=True)
    ok, known = _parse_outcome(event, text, code)
    return ImportedResult(call, text, ok, known, at, exit_code=code)


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
    told = as_object(event.get("extras")).get("error")
    if isinstance(told, bool):
        return not told, "explicit"
    if kind in _FILE_KINDS:
        return not text.startswith(_FILE_ERROR_PREFIX), "inferred"
    return None, "unknown"


def find_exit_code(*holders: dict[str, Any]) -> int | None:
    """The first of those that an observation has: its place differs with the version."""
    for holder in holders:
        code = holder.get("exit_code")
        if isinstance(code, int) and not isinstance(code, bool) and abs(code) < 2**53:
            return code
    return None


def _mcp_error_flag(text: str) -> bool | None:
    """`isError` in the answer of an MCP server."""
    try:
        told = as_object(decode(text)).get("isError")
    except JsonError:
        return None
    return told if isinstance(told, bool) else None
