"""Calls and results as Anthropic's API keeps them: blocks in the content of a message."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from policyguard.traces.arguments import as_arguments
from policyguard.traces.content import as_text
from policyguard.traces.session import Call, Result
from policyguard.traces.shape import as_id, as_string


def calls(blocks: Iterable[dict[str, Any]], at: int | None = None) -> list[Call]:
    """The `tool_use` blocks."""
    return [
        Call(
            id=as_id(block.get("id")),
            tool=as_string(block.get("name")),
            args=as_arguments(block.get("input")),
            at=at,
        )
        for block in blocks
        if block.get("type") == "tool_use"
    ]


def results(blocks: Iterable[dict[str, Any]], at: int | None = None) -> list[Result]:
    """The `tool_result` blocks. A result without `is_error` is one without an error."""
    return [
        Result(
            call=as_id(block.get("tool_use_id")),
            text=as_text(block.get("content")),
            ok=block.get("is_error") is not True,
            known="explicit",
            at=at,
        )
        for block in blocks
        if block.get("type") == "tool_result"
    ]
