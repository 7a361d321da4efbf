"""SWE-agent `.traj` files: a JSON document with one session of one turn."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from policyguard.model.event import Started
from policyguard.traces.containers.source import Sample, Source
from policyguard.traces.formats.swe_agent.failures import is_failure
from policyguard.traces.importer import SeenIds
from policyguard.traces.item import Item, Skipped
from policyguard.traces.parsing.json_shape import as_list, as_object, as_objects, as_seconds
from policyguard.traces.parsing.message_content import as_text
from policyguard.traces.session_builder import ImportedCall, ImportedResult, SessionBuilder

FORMAT = "swe-agent"


def detect(sample: Sample) -> bool:
    """Return whether the document, or an attempt in it, has steps, or it is a demonstration."""
    document = as_object(sample.document)
    runs = (document, *as_objects(document.get("attempts")))
    history = as_objects(document.get("history"))
    is_demonstration = any("action" in entry and "agent" in entry for entry in history)
    return any(map(_has_steps, runs)) or is_demonstration


def _has_steps(run: dict[str, Any]) -> bool:
    steps = as_objects(run.get("trajectory"))
    return any("action" in step and "observation" in step for step in steps)


def read(source: Source, seen_ids: SeenIds) -> Iterator[Item]:
    """Yield the steps of the trajectory; each step with an action is a call and its result."""
    document = as_object(source.sample.document)
    attempts = len(as_list(document.get("attempts")))
    if attempts:
        chosen = "only the chosen one is read" if "trajectory" in document else "none is chosen"
        yield Skipped(source.file, None, f"{attempts} attempts at one task: {chosen}")
    elif "trajectory" not in document:
        reason = "a demonstration: it has a history but no trajectory with steps"
        yield Skipped(source.file, None, reason)
    if "trajectory" not in document:
        return
    started = Started(session=source.name.removesuffix(".traj"), agent=FORMAT)
    builder = SessionBuilder(source.file, started)
    yield from builder.start()
    builder.add_prompt()
    for index, step in enumerate(as_list(document["trajectory"])):
        if isinstance(step, dict) and isinstance(step.get("action"), str):
            yield from _read_step(builder, step)
        else:
            yield Skipped(source.file, None, f"step {index}: no action")
    yield from builder.close()


def _read_step(builder: SessionBuilder, step: dict[str, Any]) -> Iterator[Item]:
    action = step["action"]
    words = action.split(maxsplit=1)
    if not words:
        yield from builder.add_reply()
        return
    tool = words[0]
    yield from builder.add_calls([ImportedCall("", tool, {"command": action})])
    if step.get("observation") is not None:
        yield from builder.add_result(_parse_result(tool, step))


def _parse_result(tool: str, step: dict[str, Any]) -> ImportedResult:
    text = as_text(step["observation"])
    failed = is_failure(tool, text)
    return ImportedResult(
        call="",
        text=text,
        ok=False if failed else None,
        provenance="inferred" if failed else "unknown",
        duration=as_seconds(step.get("execution_time")),
    )
