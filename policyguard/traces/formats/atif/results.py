"""The calls of an ATIF step, matched with the results of its observation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from policyguard.traces.parsing.json_shape import as_id, as_objects
from policyguard.traces.parsing.message_content import as_text
from policyguard.traces.session_builder import ImportedCall, ImportedResult


def parse_calls(step: dict[str, Any], at: int | None) -> list[ImportedCall]:
    """Return the calls of a step."""
    return [
        ImportedCall.parse(
            call.get("tool_call_id"), call.get("function_name"), call.get("arguments"), at
        )
        for call in as_objects(step.get("tool_calls"))
    ]


def match_results(
    calls: Sequence[ImportedCall], results: list[dict[str, Any]]
) -> tuple[list[ImportedResult], int]:
    """Return the results of a step's calls, and the number of results without a call.

    Results that name no call belong to the step. If there are as many of them as calls without a
    result, they answer these calls in order; otherwise each of these calls gets all of them, like
    commands that share one screen.
    """
    named = [result for result in results if as_id(result.get("source_call_id"))]
    shared = [as_text(result.get("content")) for result in results if _is_step_result(result)]
    matched = [_make_result(as_id(item["source_call_id"]), item.get("content")) for item in named]
    answered = {result.call for result in matched}
    waiting = [call.id for call in calls if call.id not in answered]
    if not waiting or not shared:
        return matched, len(shared)
    texts = shared if len(shared) == len(waiting) else ["\n".join(shared)] * len(waiting)
    return matched + [
        _make_result(call, text) for call, text in zip(waiting, texts, strict=True)
    ], 0


def _is_step_result(result: dict[str, Any]) -> bool:
    """Return whether the result names no call and is not just a reference to a sub-agent."""
    is_reference = result.get("content") is None and "subagent_trajectory_ref" in result
    return not as_id(result.get("source_call_id")) and not is_reference


def _make_result(call: str, content: object) -> ImportedResult:
    """Return a result; ATIF does not record whether a call succeeded."""
    return ImportedResult(call=call, text=as_text(content), provenance="unknown")
