"""Calls and results that are blocks in the content of a message.

So keep them Anthropic's API (`tool_use`, `tool_result`), Bedrock's Converse (`toolUse`,
`toolResult`) and Vercel's AI SDK (`tool-call`, `tool-result`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from policyguard.traces.arguments import as_arguments
from policyguard.traces.content import as_text
from policyguard.traces.session import Call, Result
from policyguard.traces.shape import as_id, as_object, as_string

_SDK_FAILS = ("error-text", "error-json", "execution-denied")
"""The types of an output of the AI SDK that say that the call failed."""


def calls(blocks: Iterable[dict[str, Any]], at: int | None = None) -> list[Call]:
    """The calls among the blocks; what the model's provider runs itself is none."""
    return [call for block in blocks for call in _call(block, at)]


def results(blocks: Iterable[dict[str, Any]], at: int | None = None) -> list[Result]:
    """The results among the blocks. One without a word of an error is one without an error."""
    return [result for block in blocks for result in _result(block, at)]


def _call(block: dict[str, Any], at: int | None) -> Iterator[Call]:
    kind, used = block.get("type"), block.get("toolUse")
    if kind == "tool_use":
        tool = as_string(block.get("name"))
        yield Call(as_id(block.get("id")), tool, as_arguments(block.get("input")), at)
    elif kind == "tool-call" and block.get("providerExecuted") is not True:
        args = as_arguments(block.get("input", block.get("args")))
        yield Call(as_id(block.get("toolCallId")), as_string(block.get("toolName")), args, at)
    elif isinstance(used, dict):
        tool = as_string(used.get("name"))
        yield Call(as_id(used.get("toolUseId")), tool, as_arguments(used.get("input")), at)


def _result(block: dict[str, Any], at: int | None) -> Iterator[Result]:
    kind, told = block.get("type"), block.get("toolResult")
    if kind == "tool_result":
        call, text = as_id(block.get("tool_use_id")), as_text(block.get("content"))
        yield Result(call, text, block.get("is_error") is not True, "explicit", at)
    elif kind == "tool-result":
        call, output = as_id(block.get("toolCallId")), as_object(block.get("output"))
        text = as_text(output.get("value", output.get("reason", block.get("result"))))
        failed = block.get("isError") is True or output.get("type") in _SDK_FAILS
        yield Result(call, text, not failed, "explicit", at)
    elif isinstance(told, dict):
        call, text = as_id(told.get("toolUseId")), as_text(told.get("content"))
        yield Result(call, text, told.get("status") != "error", "explicit", at)
