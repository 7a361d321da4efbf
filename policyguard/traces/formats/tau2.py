"""tau2-bench results: one JSON document with a list of simulations, each a session.

Saved as a folder, they are `results.json`, where that list is empty, and each simulation a document
in `simulations/`.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from policyguard.model.event import Started
from policyguard.traces.containers.content import UNLIMITED, PlainFile, read_bytes
from policyguard.traces.containers.source import Sample, Source
from policyguard.traces.importer import SeenIds
from policyguard.traces.item import Item, Skipped, UnreadableError
from policyguard.traces.parsing import usage
from policyguard.traces.parsing.arguments import as_arguments
from policyguard.traces.parsing.json_shape import (
    as_id,
    as_list,
    as_number,
    as_object,
    as_objects,
    as_string,
)
from policyguard.traces.parsing.message_content import as_text
from policyguard.traces.parsing.timestamps import from_iso
from policyguard.traces.session_builder import ImportedCall, ImportedResult, SessionBuilder

FORMAT = "tau2"

_INDEX_KEY = "simulation_index"
_OUTCOME_KEYS = ("reward_info", "termination_reason")


class _ResultsFile(msgspec.Struct):
    """What a simulation in a file of its own is told by the `results.json` of its folder."""

    info: object = None


def detect(sample: Sample) -> bool:
    """A document with `simulations` that are told there or elsewhere, or one that is one."""
    document = as_object(sample.document)
    if "simulations" in document:
        runs = as_objects(document["simulations"])
        return any(map(_has_messages, runs)) or isinstance(document.get(_INDEX_KEY), list)
    return (
        "task_id" in document and any(map(document.get, _OUTCOME_KEYS)) and _has_messages(document)
    )


def _has_messages(run: dict[str, Any]) -> bool:
    return any(isinstance(run.get(key), list) for key in ("messages", "ticks"))


def read(source: Source, seen_ids: SeenIds) -> Iterator[Item]:
    """One session a simulation; one that was met before, in this file or another, is Skipped."""
    document = as_object(source.sample.document)
    if "simulations" not in document:
        agent = _agent_of_folder(source.path)
        yield from _read_simulation(source, seen_ids, document, source.name, agent)
        return
    agent = _agent_name(document.get("info"))
    for index, run in enumerate(as_list(document["simulations"])):
        yield from _read_simulation(source, seen_ids, run, f"{source.name}:{index}", agent)
    if not document["simulations"]:
        yield Skipped(source.file, None, "its simulations are in files of their own")


def _read_simulation(
    source: Source, seen_ids: SeenIds, run: object, fallback_id: str, agent: str
) -> Iterator[Item]:
    """One simulation; `place` names it where it has no id."""
    name = as_id(as_object(run).get("id"))
    reason = _skip_reason(as_object(run))
    if reason is None and name in seen_ids:
        reason = f"met before in {seen_ids[name]}, counted once"
    if reason is not None:
        yield Skipped(source.file, None, f"simulation `{name or fallback_id}`: {reason}")
        return
    if name:
        seen_ids[name] = source.file
    at = from_iso(as_object(run).get("start_time"))
    started = Started(session=name or fallback_id, at=at, agent=agent)
    yield from _read_session(source, SessionBuilder(source.file, started), as_object(run))


def _skip_reason(run: dict[str, Any]) -> str | None:
    """Why a simulation is not read; None for one that is.

    In a full-duplex run both sides speak at the same time, which is no order of turns.
    """
    if not run.get("messages") and run.get("ticks"):
        return "full-duplex, in `ticks`, which are not read"
    return None if isinstance(run.get("messages"), list) else "no messages"


def _agent_name(info: object) -> str:
    return as_string(as_object(as_object(info).get("agent_info")).get("implementation"))


def _agent_of_folder(path: Path) -> str:
    """The agent, where the path is that of a simulation in a folder of results."""
    if path.parent.name != "simulations":
        return ""
    try:
        data = read_bytes(PlainFile(path.parent.parent / "results.json").open(), UNLIMITED)
        return _agent_name(msgspec.json.decode(data, type=_ResultsFile).info)
    except (OSError, UnreadableError, msgspec.DecodeError, RecursionError):
        return ""


def _read_session(source: Source, events: SessionBuilder, run: dict[str, Any]) -> Iterator[Item]:
    yield from events.start()
    for index, message in enumerate(run["messages"]):
        if not isinstance(message, dict):
            reason = f"session `{events.session}`, message {index}: no object"
            yield Skipped(source.file, None, reason)
        else:
            yield from _read_message(events, message)
    yield from events.close(_success(run), from_iso(run.get("end_time")))


def _read_message(events: SessionBuilder, message: dict[str, Any]) -> Iterator[Item]:
    at = from_iso(message.get("timestamp"))
    role = message.get("role")
    if role == "assistant":
        tokens, cost = (
            usage.count_tokens(message.get("usage")),
            usage.read_cost(message.get("cost")),
        )
        yield from events.add_reply(tokens, cost, at)
        yield from events.add_calls(_parse_calls(message, at))
    elif role == "tool":
        for answer in as_objects(message.get("tool_messages", [message])):
            if answer.get("requestor") != "user":
                yield from events.add_result(_parse_result(answer, at))
    elif role == "user" and not message.get("tool_calls"):
        events.add_prompt(at)


def _parse_calls(message: dict[str, Any], at: int | None) -> list[ImportedCall]:
    return [
        ImportedCall(
            id=as_id(call.get("id")),
            tool=as_string(call.get("name")),
            args=as_arguments(call.get("arguments")),
            at=at,
        )
        for call in as_objects(message.get("tool_calls"))
        if call.get("requestor") != "user"
    ]


def _parse_result(answer: dict[str, Any], at: int | None) -> ImportedResult:
    failed = answer.get("error")
    told = isinstance(failed, bool)
    return ImportedResult(
        call=as_id(answer.get("id")),
        text=as_text(answer.get("content")),
        ok=not failed if told else None,
        provenance="explicit" if told else "unknown",
        at=from_iso(answer.get("timestamp")) or at,
    )


def _success(run: dict[str, Any]) -> bool | None:
    reward = as_number(as_object(run.get("reward_info")).get("reward"))
    return None if reward is None else reward >= 1
