"""Conversion of a message's content into the text that the model saw."""

from __future__ import annotations

from hashlib import sha256
from typing import Any

import msgspec

from policyguard.traces.parsing.json_shape import as_object, as_string

_DATA_KEYS = (
    "source",
    "image",
    "image_url",
    "inlineData",
    "inline_data",
    "fileData",
    "file_data",
    "file",
    "file_url",
    "file_id",
    "input_audio",
    "audio",
    "video",
    "document",
    "resource",
    "data",
    "url",
)
"""The keys under which a block without text has its data or address."""

_DIGEST_LENGTH = 12
"""Hex digits that distinguish the pictures of a run."""


def as_text(content: object) -> str:
    """Return the text of a content, or of its blocks.

    A block without text becomes `[type digest]`, the digest being that of its data or address, so
    that equal blocks compare as equal and no data is kept.
    """
    if content is None:
        return ""
    if isinstance(content, str):
        return content
    if isinstance(content, list):
        return "\n".join(_block_text(block) for block in content)
    return msgspec.json.encode(content).decode()


def _block_text(block: object) -> str:
    if isinstance(block, str):
        return block
    text = as_object(block).get("text")
    if isinstance(text, str):
        return text
    return (
        _block_placeholder(block)
        if isinstance(block, dict)
        else msgspec.json.encode(block).decode()
    )


def _block_placeholder(block: dict[str, Any]) -> str:
    key = next((key for key in _DATA_KEYS if block.get(key)), "")
    kind = as_string(block.get("type"))
    # Bedrock and Gemini name the type by the block's only key; any other object is a tool's own.
    if not kind and not (len(block) == 1 and isinstance(block.get(key), dict)):
        return msgspec.json.encode(block).decode()
    if not key:
        return f"[{kind}]"
    data = msgspec.json.encode(block[key], order="deterministic")
    return f"[{kind or key} {sha256(data).hexdigest()[:_DIGEST_LENGTH]}]"
