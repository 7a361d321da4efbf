"""What a tool gave, read: plain text and JSON as they are, MCP tool results by their parts.

An MCP result (`CallToolResult`: MCP 2025-06-18, "Tools"; tasks: MCP 2025-11-25) says itself whether
it is an error, and its `_meta` carries flags. What came over the wire is the tool's word: keys that
only the host may set are dropped wherever the protocol has a `_meta`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from policyguard.engines.fingerprint import shown, text_of

_RUNNING = ("working", "input_required")
_STOPPED = ("failed", "cancelled")
"""Of a task's states (MCP 2025-11-25), those in which it has not succeeded."""


class Given(msgspec.Struct, frozen=True):
    """A result: its text, whether it says that the call failed or is still going on, its flags."""

    text: str
    failed: bool = False
    pending: bool = False
    meta: dict[str, Any] = {}


def read(result: Any, harness: Sequence[str]) -> Given:
    """Read a result. `harness` are the keys of `_meta` that only the host may set.

    One that raises when its parts are looked at, such as a proxy or a model that cannot be written
    as JSON, is its text.
    """
    if result is None or isinstance(result, (str, bytes, bytearray)):
        return Given(text_of(result))
    try:
        return _of_parts(result, harness)
    except Exception:  # noqa: BLE001 - a stranger's object, and whatever it raises when it is read
        return Given(text_of(result))


def told(error: object) -> str:
    """What was raised or said, as text."""
    if not isinstance(error, BaseException):
        return text_of(error)
    return f"{type(error).__name__}: {shown(error)}".removesuffix(": ")


def _of_parts(result: Any, harness: Sequence[str]) -> Given:
    parts = _parts(result)
    if parts is None:
        return Given(text_of(result))
    task = parts.get("task")
    inner = parts.get("result")
    if isinstance(task, Mapping) and isinstance(inner, Mapping):
        parts = {**inner, "task": task, "_meta": {**_meta(parts), **_meta(inner)}}
    status = task.get("status") if isinstance(task, Mapping) else None
    return Given(
        _text(parts) if "content" in parts else text_of(result),
        failed=parts.get("isError") is True or status in _STOPPED,
        pending=status in _RUNNING,
        meta={key: value for key, value in _meta(parts).items() if key not in harness},
    )


def _parts(result: Any) -> Mapping[str, Any] | None:
    """The fields of an MCP result; None for anything else."""
    if isinstance(result, Mapping):
        told = isinstance(result.get("content"), list) and (
            not result.keys().isdisjoint(("isError", "structuredContent", "_meta"))
            or all(isinstance(block, Mapping) and "type" in block for block in result["content"])
        )
        task = isinstance(result.get("task"), Mapping) and "status" in result["task"]
        return result if told or task else None
    dump = getattr(result, "model_dump", None)  # the SDKs' types are pydantic models
    if callable(dump) and (hasattr(result, "content") or hasattr(result, "task")):
        dumped = dump(mode="json", by_alias=True, exclude_none=True)
        return _parts(dumped) if isinstance(dumped, Mapping) else None
    return None


def _meta(parts: Mapping[str, Any]) -> dict[str, Any]:
    meta = parts.get("_meta")
    return {str(key): value for key, value in meta.items()} if isinstance(meta, Mapping) else {}


def _text(parts: Mapping[str, Any]) -> str:
    """What the model sees of it: text blocks as they are, all others as JSON."""
    texts = []
    for block in parts["content"]:
        text = block.get("text") if isinstance(block, Mapping) else None
        texts.append(text if isinstance(text, str) else text_of(block))
    if not texts and parts.get("structuredContent") is not None:
        texts.append(text_of(parts["structuredContent"]))
    return "\n".join(texts)
