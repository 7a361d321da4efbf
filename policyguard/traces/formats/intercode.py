"""Results of InterCode: a JSON document with one entry per task, each a session of one turn."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from policyguard.model.event import Provenance, SessionStarted
from policyguard.traces.containers.source import Sample, Source
from policyguard.traces.item import Item, Skipped
from policyguard.traces.parsing.json_shape import as_list, as_object, as_objects, as_string
from policyguard.traces.parsing.message_content import as_text
from policyguard.traces.session_builder import ImportedCall, ImportedResult, SessionBuilder

FORMAT = "intercode"


def detect(sample: Sample) -> bool:
    """Return whether an entry of the document has an environment and steps."""
    entries = as_object(sample.document).values()
    return any(
        isinstance(entry, dict)
        and "environment" in entry
        and ("turn_history" in entry or "trajectory" in entry)
        for entry in entries
    )


def read(source: Source) -> Iterator[Item]:
    """Yield one session per task, in the file's order."""
    for key, entry in as_object(source.sample.document).items():
        name = f"{source.name}:{key}"
        steps = _parse_steps(as_object(entry))
        if steps is None:
            yield Skipped(source.file, None, f"session `{name}`: no steps")
            continue
        tool = as_string(as_object(entry).get("environment")).removeprefix("ic_")
        builder = SessionBuilder(source.file, SessionStarted(session=name))
        builder.add_prompt()
        for action, observation, valid in steps:
            yield from builder.add_calls([ImportedCall("", tool, {"command": action})])
            provenance: Provenance = "unknown" if valid is None else "explicit"
            result = ImportedResult("", as_text(observation), valid, provenance)
            yield from builder.add_result(result)
        yield from builder.close()


def _parse_steps(entry: dict[str, Any]) -> list[tuple[object, object, bool | None]] | None:
    """Return actions, observations, and whether the environment ran the action, if recorded."""
    history = as_object(entry.get("turn_history"))
    actions = history.get("actions")
    if isinstance(actions, list):
        texts, flags = as_list(history.get("observations")), as_list(history.get("valid_action"))
        return [
            (action, texts[index] if index < len(texts) else None, _flag_at(flags, index))
            for index, action in enumerate(actions)
        ]
    if isinstance(entry.get("trajectory"), list):
        steps = as_objects(entry["trajectory"])
        return [(step.get("action"), step.get("observation"), None) for step in steps]
    return None


def _flag_at(flags: list[Any], index: int) -> bool | None:
    flag = flags[index] if index < len(flags) else None
    return flag if isinstance(flag, bool) else None
