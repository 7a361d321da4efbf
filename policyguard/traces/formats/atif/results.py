"""The calls of an ATIF step, and which of them each result of its observation answers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from policyguard.traces.parsing.arguments import as_arguments
from policyguard.traces.parsing.json_shape import as_id, as_objects, as_string
from policyguard.traces.parsing.message_content import as_text
from policyguard.traces.session_builder import ImportedCall, ImportedResult


def parse_calls(step: dict[str, Any], at: int | None) -> list[ImportedCall]:
    """The calls of a step."""
    return [
        ImportedCall(
            id=as_id(call.get("tool_call_id")),
            tool=as_string(call.get("function_name")),
            args=as_arguments(call.get("arguments")),
            at=at,
        )
        for call in as_objects(step.get("tool_calls"))
    ]


def match_results(
    calls: Sequence[ImportedCall], results: list[dict[str, Any]]
) -> tuple[list[ImportedResult], int]:
    """The results of the calls `made` in a step, and how many results are those of no call.

    A result that names no call is the step's: as many of them as calls without a result of their
    own answer those in order; else each of these calls is answered by all of them together, as
    commands are that one screen shows the end of.
    """
    named = [result for result in results if as_id(result.get("source_call_id"))]
    shared = [as_text(result.get("content")) for result in results if _is_step_result(result)]
    told = [
        _make_result(as_id(result["source_call_id"]), result.get("content")) for result in named
    ]
    answered = {result.call for result in told}
    waiting = [call.id for call in calls if call.id not in answered]
    if not waiting or not shared:
        return told, len(shared)
    texts = shared if len(shared) == len(waiting) else ["\n".join(shared)] * len(waiting)
    return told + [_make_result(call, text) for call, text in zip(waiting, texts, strict=True)], 0


def _is_step_result(result: dict[str, Any]) -> bool:
    """Whether it names no call, and says more than who else was at work."""
    only_refers = result.get("content") is None and "subagent_trajectory_ref" in result
    return not as_id(result.get("source_call_id")) and not only_refers


def _make_result(call: str, content: object) -> ImportedResult:
    """A result of which nothing tells how the call ended."""
    return ImportedResult(call=call, text=as_text(content), provenance="unknown")
