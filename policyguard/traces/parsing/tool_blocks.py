"""Calls and results that are blocks in the content of a message.

So keep them Anthropic's API (`tool_use`, `tool_result`), Bedrock's Converse (`toolUse`,
`toolResult`) and Vercel's AI SDK (`tool-call`, `tool-result`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from policyguard.traces.parsing.arguments import as_arguments
from policyguard.traces.parsing.json_shape import as_id, as_object, as_string
from policyguard.traces.parsing.message_content import as_text
from policyguard.traces.session_builder import ImportedCall, ImportedResult

_SDK_ERROR_TYPES = ("error-text", "error-json", "execution-denied")
"""The types of an output of the AI SDK that say that the call failed."""


def parse_calls(blocks: Iterable[dict[str, Any]], at: int | None = None) -> list[ImportedCall]:
    """The calls among the blocks; what the model's provider runs itself is none."""
    return [call for block in blocks for call in _parse_call(block, at)]


def parse_results(blocks: Iterable[dict[str, Any]], at: int | None = None) -> list[ImportedResult]:
    """The results among the blocks. One without a word of an error is one without an error."""
    return [result for block in blocks for result in _parse_result(block, at)]


def _parse_call(block: dict[str, Any], at: int | None) -> Iterator[ImportedCall]:
    kind, used = block.get("type"), block.get("toolUse")
    if kind == "tool_use":
        tool = as_string(block.get("name"))
        yield ImportedCall(as_id(block.get("id")), tool, as_arguments(block.get("input")), at)
    elif kind == "tool-call" and block.get("providerExecuted") is not True:
        args = as_arguments(block.get("input", block.get("args")))
        yield ImportedCall(
            as_id(block.get("toolCallId")), as_string(block.get("toolName")), args, at
        )
    elif isinstance(used, dict):
        tool = as_string(used.get("name"))
        yield ImportedCall(as_id(used.get("toolUseId")), tool, as_arguments(used.get("input")), at)


def _parse_result(block: dict[str, Any], at: int | None) -> Iterator[ImportedResult]:
    kind, told = block.get("type"), block.get("toolResult")
    if kind == "tool_result":
        call, text = as_id(block.get("tool_use_id")), as_text(block.get("content"))
        yield ImportedResult(call, text, block.get("is_error") is not True, "explicit", at)
    elif kind == "tool-result":
        call, output = as_id(block.get("toolCallId")), as_object(block.get("output"))
        text = as_text(output.get("value", output.get("reason", block.get("result"))))
        failed = block.get("isError") is True or output.get("type") in _SDK_ERROR_TYPES
        yield ImportedResult(call, text, not failed, "explicit", at)
    elif isinstance(told, dict):
        call, text = as_id(told.get("toolUseId")), as_text(told.get("content"))
        yield ImportedResult(call, text, told.get("status") != "error", "explicit", at)
