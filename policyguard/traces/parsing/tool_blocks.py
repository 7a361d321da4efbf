"""Calls and results as content blocks of a message.

Used by Anthropic's API (`tool_use`, `tool_result`), Bedrock's Converse (`toolUse`, `toolResult`)
and Vercel's AI SDK (`tool-call`, `tool-result`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from policyguard.traces.parsing.json_shape import as_id, as_object
from policyguard.traces.parsing.message_content import as_text
from policyguard.traces.session_builder import ImportedCall, ImportedResult

_SDK_ERROR_TYPES = ("error-text", "error-json", "execution-denied")
"""Output types of the AI SDK for a failed call."""


def parse_calls(blocks: Iterable[dict[str, Any]], at: int | None = None) -> list[ImportedCall]:
    """Return the calls among the blocks, without those that the model's provider runs."""
    return [call for block in blocks for call in _parse_call(block, at)]


def parse_results(blocks: Iterable[dict[str, Any]], at: int | None = None) -> list[ImportedResult]:
    """Return the results among the blocks; a result without an error flag succeeded."""
    return [result for block in blocks for result in _parse_result(block, at)]


def _parse_call(block: dict[str, Any], at: int | None) -> Iterator[ImportedCall]:
    kind, bedrock = block.get("type"), block.get("toolUse")
    if kind == "tool_use":
        yield ImportedCall.parse(block.get("id"), block.get("name"), block.get("input"), at)
    elif kind == "tool-call" and block.get("providerExecuted") is not True:
        args = block.get("input", block.get("args"))
        yield ImportedCall.parse(block.get("toolCallId"), block.get("toolName"), args, at)
    elif isinstance(bedrock, dict):
        args = bedrock.get("input")
        yield ImportedCall.parse(bedrock.get("toolUseId"), bedrock.get("name"), args, at)


def _parse_result(block: dict[str, Any], at: int | None) -> Iterator[ImportedResult]:
    kind, bedrock = block.get("type"), block.get("toolResult")
    if kind == "tool_result":
        call, text = as_id(block.get("tool_use_id")), as_text(block.get("content"))
        yield ImportedResult(call, text, block.get("is_error") is not True, "explicit", at)
    elif kind == "tool-result":
        call, output = as_id(block.get("toolCallId")), as_object(block.get("output"))
        text = as_text(output.get("value", output.get("reason", block.get("result"))))
        failed = block.get("isError") is True or output.get("type") in _SDK_ERROR_TYPES
        yield ImportedResult(call, text, not failed, "explicit", at)
    elif isinstance(bedrock, dict):
        call, text = as_id(bedrock.get("toolUseId")), as_text(bedrock.get("content"))
        yield ImportedResult(call, text, bedrock.get("status") != "error", "explicit", at)
