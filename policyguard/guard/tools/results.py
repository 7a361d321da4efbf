"""Tool results: parsed (plain text, JSON, MCP tool results), and the advice they carry.

An MCP result (`CallToolResult`: MCP 2025-06-18, "Tools"; tasks: MCP 2025-11-25) has an error flag,
and flags in `_meta`. Tool output is untrusted: keys of `_meta` that only the host may set are
dropped.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar, cast

import msgspec

from policyguard.engines.fingerprint import result_text, safe_str

R = TypeVar("R")

_PENDING_TASK_STATES = ("working", "input_required")
_FAILED_TASK_STATES = ("failed", "cancelled")
"""States of tasks (MCP 2025-11-25) that have not succeeded."""


class ToolResult(msgspec.Struct, frozen=True):
    """A parsed result: its text, its state, and its flags.

    `value` is what the tool returned, where that is not text, `structured` an MCP result's
    `structuredContent`.
    """

    text: str
    failed: bool = False
    pending: bool = False
    meta: dict[str, Any] = {}
    value: Any = None
    structured: Any = None


def parse_result(result: Any, host_only_keys: Sequence[str]) -> ToolResult:
    """Parse a result, without the keys of `_meta` that only the host may set.

    A result whose fields raise when they are read, such as a proxy, is taken as its text.
    """
    if result is None or isinstance(result, str):
        return ToolResult(result_text(result))
    if isinstance(result, (bytes, bytearray)):
        return ToolResult(result_text(result), value=result)
    try:
        return _parse_mcp(result, host_only_keys)
    except Exception:  # noqa: BLE001 - a tool's object may raise anything
        return ToolResult(result_text(result), value=result)


def error_text(error: object) -> str:
    """Return an error as text."""
    if not isinstance(error, BaseException):
        return result_text(error)
    return f"{type(error).__name__}: {safe_str(error)}".removesuffix(": ")


def append_advice(result: R, advice: str) -> R:
    """Return an MCP result with the advice as another text block, any other as it is."""
    try:
        return _append_block(result, advice)
    except Exception:  # noqa: BLE001 - a tool's object may raise anything
        return result


def _append_block(result: R, advice: str) -> R:
    if isinstance(result, Mapping):
        content = result.get("content")
        if not isinstance(content, list):
            return result
        block: Any = {"type": "text", "text": advice}
        return cast("R", {**result, "content": [*content, block]})
    content = getattr(result, "content", None)
    copy = getattr(result, "model_copy", None)
    block_type = getattr(sys.modules.get(type(result).__module__), "TextContent", None)
    if not (isinstance(content, list) and callable(copy) and callable(block_type)):
        return result
    block = block_type(type="text", text=advice)
    return cast("R", copy(update={"content": [*content, block]}))


def _parse_mcp(result: Any, host_only_keys: Sequence[str]) -> ToolResult:
    fields = mcp_fields(result)
    if fields is None:
        return ToolResult(result_text(result), value=result)
    task = fields.get("task")
    inner = fields.get("result")
    if isinstance(task, Mapping) and isinstance(inner, Mapping):
        fields = {**inner, "task": task, "_meta": {**_meta(fields), **_meta(inner)}}
    status = task.get("status") if isinstance(task, Mapping) else None
    return ToolResult(
        _content_text(fields) if "content" in fields else result_text(result),
        failed=fields.get("isError") is True or status in _FAILED_TASK_STATES,
        pending=status in _PENDING_TASK_STATES,
        meta={key: value for key, value in _meta(fields).items() if key not in host_only_keys},
        value=result,
        structured=fields.get("structuredContent"),
    )


def mcp_fields(result: Any) -> Mapping[str, Any] | None:
    """Return the fields of an MCP result; None for anything else."""
    if isinstance(result, Mapping):
        is_result = isinstance(result.get("content"), list) and (
            not result.keys().isdisjoint(("isError", "structuredContent", "_meta"))
            or all(isinstance(block, Mapping) and "type" in block for block in result["content"])
        )
        task = isinstance(result.get("task"), Mapping) and "status" in result["task"]
        return result if is_result or task else None
    dump = getattr(result, "model_dump", None)  # the SDKs' types are pydantic models
    if callable(dump) and (hasattr(result, "content") or hasattr(result, "task")):
        dumped = dump(mode="json", by_alias=True, exclude_none=True)
        return mcp_fields(dumped) if isinstance(dumped, Mapping) else None
    content, names = getattr(result, "content", None), ("isError", "is_error")
    flag = next((getattr(result, name) for name in names if hasattr(result, name)), None)
    if not isinstance(content, list) or not isinstance(flag, bool):
        return None
    blocks = [{"text": block.text} if hasattr(block, "text") else block for block in content]
    return {"content": blocks, "isError": flag, "_meta": getattr(result, "_meta", None)}


def _meta(fields: Mapping[str, Any]) -> dict[str, Any]:
    meta = fields.get("_meta")
    return {str(key): value for key, value in meta.items()} if isinstance(meta, Mapping) else {}


def _content_text(fields: Mapping[str, Any]) -> str:
    """Return what the model sees: text blocks as they are, others as JSON."""
    texts = []
    for block in fields["content"]:
        text = block.get("text") if isinstance(block, Mapping) else None
        texts.append(text if isinstance(text, str) else result_text(block))
    if not texts and fields.get("structuredContent") is not None:
        texts.append(result_text(fields["structuredContent"]))
    return "\n".join(texts)
