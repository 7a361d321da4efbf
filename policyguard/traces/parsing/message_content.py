"""Conversion of recorded contents into text, and of recorded arguments into objects."""

from __future__ import annotations

from hashlib import sha256
from typing import Any

import msgspec

from policyguard.traces.parsing.json_shape import as_object, as_string
from policyguard.traces.parsing.json_text import try_decode

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
