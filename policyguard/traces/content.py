"""The content of a message → the text that the model saw."""

from __future__ import annotations

import msgspec

from policyguard.traces.shape import as_string


def as_text(content: object) -> str:
    """Text, or the text of content blocks; a block that is no text stands as `[its type]`."""
    if content is None:
        return ""
    if isinstance(content, str):
        return content
    if isinstance(content, list):
        return "\n".join(_block(block) for block in content)
    return msgspec.json.encode(content).decode()


def _block(block: object) -> str:
    if not isinstance(block, dict):
        return block if isinstance(block, str) else msgspec.json.encode(block).decode()
    text = block.get("text")
    return text if isinstance(text, str) else f"[{as_string(block.get('type')) or 'block'}]"
