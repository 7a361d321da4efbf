"""What result rules leave of a result that is no text: JSON, MCP results, objects.

A structure keeps its type where each part can be redacted by itself. Where that is not enough, and
where it is cut or withheld, its edited text takes its place.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from policyguard.engines.fingerprint import result_text, safe_str
from policyguard.evaluator.result_rules import ResultEdits, TextPatterns
from policyguard.guard.tools.results import ToolResult, mcp_fields, parse_result
from policyguard.model.redaction import redact_value


class UnreadableResultError(Exception):
    """A structure that can be searched neither part by part nor as a text."""


def list_texts(value: Any) -> list[str]:
    """Return what is written in a structure: texts, names, numbers; of bytes what they spell.

    The texts of content blocks are also joined: what one does not show, several may.
    `UnreadableResultError` for a structure that has no text.
    """
    plain = _to_plain(value)
    found: list[str] = []

    def note(text: str) -> str:
        found.append(text)
        return text

    try:
        redact_value(plain, note)
    except (RecursionError, ValueError):
        found.append(_whole_text(value))
    # One search is faster than many.
    return [_SEPARATOR.join(found), "".join(_block_texts(plain).values())]


def edit_value(value: Any, text: str, edits: ResultEdits) -> tuple[Any, str]:
    """Return a structure and its text with edits applied. Raises what redaction does."""
    if edits.is_withheld:
        return _replace_by_text(value, ""), ""
    if edits.redactor is not None:
        value, text = _redact(value, text, edits.redactor)
    cut = edits.cut(text)
    is_cut = cut is not text or (
        edits.keep is not None and count_structured(parse_result(value, ())) > edits.keep
    )
    return _replace_by_text(value, cut) if is_cut else value, cut


def count_structured(parsed: ToolResult) -> int:
    """Return how many characters the part of an MCP result has that its text does not show."""
    return 0 if parsed.structured is None else len(result_text(parsed.structured))


def _redact(value: Any, text: str, redactor: TextPatterns) -> tuple[Any, str]:
    plain = _to_plain(value)
    try:
        redacted = redact_value(_redact_across_blocks(plain, redactor), redactor.redact)
    except (RecursionError, ValueError):
        redacted = redactor.redact(text)
    if redacted is not plain:
        value = _restore_type(value, redacted)
        text = parse_result(value, ()).text
    edited = redactor.redact(text)
    # Another text now means a match that goes over several parts.
    return value if edited is text else _replace_by_text(value, edited), edited


def _redact_across_blocks(plain: Any, redactor: TextPatterns) -> Any:
    texts = _block_texts(plain)
    redacted = redactor.redact_across(list(texts.values()))
    if redacted == list(texts.values()):
        return plain
    blocks = list(plain["content"])
    for index, text in zip(texts, redacted, strict=True):
        blocks[index] = {**blocks[index], "text": text}
    return {**plain, "content": blocks}


def _block_texts(plain: Any) -> dict[int, str]:
    """Return the texts of an MCP result's content blocks, by their index."""
    content = plain.get("content") if isinstance(plain, dict) else None
    return {
        index: block["text"]
        for index, block in enumerate(content if isinstance(content, list) else ())
        if isinstance(block, dict) and isinstance(block.get("text"), str)
    }


def _replace_by_text(value: Any, text: str) -> Any:
    """Return a result of nothing but a text: an MCP result of one block, else the text itself."""
    fields = _mcp_fields(value)
    if fields is None or "content" not in fields:
        return text
    replaced: dict[str, Any] = {"content": [{"type": "text", "text": text}] if text else []}
    if "isError" in fields:
        replaced["isError"] = fields["isError"]
    return _restore_type(value, replaced)


def _restore_type(value: Any, plain: Any) -> Any:
    """Return JSON as the pydantic model that it came from, if that accepts it; else as it is."""
    validate = getattr(type(value), "model_validate", None)
    if not callable(validate):
        return plain
    try:
        return validate(plain)
    except Exception:  # noqa: BLE001 - a model may reject what is redacted
        return plain


def _to_plain(value: Any) -> Any:
    """Return a result as JSON, with texts for the objects in it that are none."""
    fields = _mcp_fields(value)
    try:
        return msgspec.to_builtins(
            value if fields is None else fields,
            builtin_types=(bytes, bytearray, memoryview),
            enc_hook=_plain_object,
        )
    except RecursionError:
        return _whole_text(value)
    except Exception:  # noqa: BLE001 - a tool's object may raise anything
        return result_text(value)


def _whole_text(value: Any) -> str:
    """Return the text of a structure that cannot be read part by part."""
    text = result_text(value)
    if text == f"<{type(value).__name__}>":
        raise UnreadableResultError("it nests too deeply, or a number in it is too long")
    return text


def _plain_object(value: Any) -> Any:
    dump = getattr(value, "model_dump", None)
    if callable(dump):
        return dump(mode="json", by_alias=True, exclude_none=True)
    return dict(value) if isinstance(value, Mapping) else safe_str(value)


def _mcp_fields(value: Any) -> Mapping[str, Any] | None:
    """Return the fields of an MCP result; None for anything else, also if reading it fails."""
    try:
        return mcp_fields(value)
    except Exception:  # noqa: BLE001 - a tool's object may raise anything
        return None


_SEPARATOR = "\n\x00\n"
"""Between texts that are searched together: no pattern is meant to match across it."""
