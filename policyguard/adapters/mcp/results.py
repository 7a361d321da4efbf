"""Results of tools as the client gets them: refusals, notes of the policy, and no inner keys."""

from __future__ import annotations

from collections.abc import Iterable
from fnmatch import fnmatchcase
from typing import Any

from policyguard.adapters.mcp.call_sessions import RecordedCall
from policyguard.model.decision import Decision

NOTES = "policyguard"
"""The member of `structuredContent` and `_meta` that is the policy's."""


def refuse(decision: Decision, *, is_modern: bool) -> dict[str, Any]:
    """Return the result of a call that was refused: a tool's error, for the model to read."""
    return tool_error(decision.message, {**decision.structured}, is_modern=is_modern)


def tool_error(
    text: str, structured: dict[str, Any] | None = None, *, is_modern: bool
) -> dict[str, Any]:
    """Return a tool's error with a text; some clients show a model its structured content only."""
    result: dict[str, Any] = {"content": [{"type": "text", "text": text}], "isError": True}
    if structured is not None:
        result["structuredContent"] = {"message": text, **structured}
        result["_meta"] = {NOTES: structured}
    if is_modern:
        result["resultType"] = "complete"
    return result


def edit_result(
    result: dict[str, Any], recorded: RecordedCall, hidden_keys: Iterable[str]
) -> dict[str, Any]:
    """Return a result as the policy leaves it, with its advice; the same one if nothing changes.

    Advice is a block of text, and a member of the structured content if that is an object: some
    clients show a model nothing else.
    """
    edited = recorded.result
    if not isinstance(edited, dict):  # it could not be edited part by part
        edited = {"content": [{"type": "text", "text": recorded.text}]}
    if edited == result:
        edited = result
    else:
        # What is not the tool's own stays, such as `resultType`.
        kept = {key: result[key] for key in ("resultType", "isError") if key in result}
        edited = {**kept, **edited}
    structured = edited.get("structuredContent")
    if recorded.advice and isinstance(structured, dict):
        notes = {"advice": recorded.advice}
        edited = {**edited, "structuredContent": {**structured, NOTES: notes}}
    return hide_meta(edited, hidden_keys)


def hide_meta(result: dict[str, Any], hidden_keys: Iterable[str]) -> dict[str, Any]:
    """Return a result without those keys of `_meta` (globs)."""
    meta = result.get("_meta")
    if not isinstance(meta, dict):
        return result
    globs = [*hidden_keys]
    hidden = {key for key in meta if any(fnmatchcase(key, glob) for glob in globs)}
    if not hidden:
        return result
    left = {key: value for key, value in meta.items() if key not in hidden}
    rest = {key: value for key, value in result.items() if key != "_meta"}
    return {**rest, "_meta": left} if left else rest


def edit_error(error: dict[str, Any], recorded: RecordedCall) -> dict[str, Any]:
    """Return a JSON-RPC error as the policy leaves it, with its advice."""
    if recorded.violations:
        code = {key: error[key] for key in ("code",) if key in error}
        return {**code, "message": recorded.text or "the error is withheld"}
    if recorded.advice:
        return {**error, "message": f"{error.get('message', '')}\n\n{recorded.advice}"}
    return error
