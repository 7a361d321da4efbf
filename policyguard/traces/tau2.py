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
from policyguard.traces import usage
from policyguard.traces.arguments import as_arguments
from policyguard.traces.content import as_text
from policyguard.traces.contents import UNLIMITED, PlainFile, whole
from policyguard.traces.importer import Met
from policyguard.traces.item import Item, Skipped, UnreadableError
from policyguard.traces.session import Call, Result, SessionEvents
from policyguard.traces.shape import as_id, as_list, as_number, as_object, as_objects, as_string
from policyguard.traces.source import Sample, Source
from policyguard.traces.times import from_iso

FORMAT = "tau2"

_ELSEWHERE = "simulation_index"
_OUTCOME = ("reward_info", "termination_reason")


class _Results(msgspec.Struct):
    """What a simulation in a file of its own is told by the `results.json` of its folder."""

    info: object = None


def detect(sample: Sample) -> bool:
    """A document with `simulations` that are told there or elsewhere, or one that is one."""
    document = as_object(sample.document)
    if "simulations" in document:
        runs = as_objects(document["simulations"])
        return any(map(_is_told, runs)) or isinstance(document.get(_ELSEWHERE), list)
    return "task_id" in document and any(map(document.get, _OUTCOME)) and _is_told(document)


def _is_told(run: dict[str, Any]) -> bool:
    return any(isinstance(run.get(key), list) for key in ("messages", "ticks"))


def read(source: Source, met: Met) -> Iterator[Item]:
    """One session a simulation; one that was met before, in this file or another, is Skipped."""
    document = as_object(source.sample.document)
    if "simulations" not in document:
        agent = _agent_beside(source.path)
        yield from _simulation(source, met, document, source.name, agent)
        return
    agent = _agent(document.get("info"))
    for index, run in enumerate(as_list(document["simulations"])):
        yield from _simulation(source, met, run, f"{source.name}:{index}", agent)
    if not document["simulations"]:
        yield Skipped(source.file, None, "its simulations are in files of their own")


def _simulation(source: Source, met: Met, run: object, place: str, agent: str) -> Iterator[Item]:
    """One simulation; `place` names it where it has no id."""
    name = as_id(as_object(run).get("id"))
    reason = _unreadable(as_object(run))
    if reason is None and name in met:
        reason = f"met before in {met[name]}, counted once"
    if reason is not None:
        yield Skipped(source.file, None, f"simulation `{name or place}`: {reason}")
        return
    if name:
        met[name] = source.file
    at = from_iso(as_object(run).get("start_time"))
    started = Started(session=name or place, at=at, agent=agent)
    yield from _session(source, SessionEvents(source.file, started), as_object(run))


def _unreadable(run: dict[str, Any]) -> str | None:
    """Why a simulation is not read; None for one that is.

    In a full-duplex run both sides speak at the same time, which is no order of turns.
    """
    if not run.get("messages") and run.get("ticks"):
        return "full-duplex, in `ticks`, which are not read"
    return None if isinstance(run.get("messages"), list) else "no messages"


def _agent(info: object) -> str:
    return as_string(as_object(as_object(info).get("agent_info")).get("implementation"))


def _agent_beside(path: Path) -> str:
    """The agent, where the path is that of a simulation in a folder of results."""
    if path.parent.name != "simulations":
        return ""
    try:
        data = whole(PlainFile(path.parent.parent / "results.json").open(), UNLIMITED)
        return _agent(msgspec.json.decode(data, type=_Results).info)
    except (OSError, UnreadableError, msgspec.DecodeError, RecursionError):
        return ""


def _session(source: Source, events: SessionEvents, run: dict[str, Any]) -> Iterator[Item]:
    yield from events.start()
    for index, message in enumerate(run["messages"]):
        if not isinstance(message, dict):
            reason = f"session `{events.session}`, message {index}: no object"
            yield Skipped(source.file, None, reason)
        else:
            yield from _message(events, message)
    yield from events.close(_success(run), from_iso(run.get("end_time")))


def _message(events: SessionEvents, message: dict[str, Any]) -> Iterator[Item]:
    at = from_iso(message.get("timestamp"))
    role = message.get("role")
    if role == "assistant":
        tokens, cost = usage.tokens(message.get("usage")), usage.cost(message.get("cost"))
        yield from events.reply(tokens, cost, at)
        yield from events.calls(_calls(message, at))
    elif role == "tool":
        for answer in as_objects(message.get("tool_messages", [message])):
            if answer.get("requestor") != "user":
                yield from events.result(_result(answer, at))
    elif role == "user" and not message.get("tool_calls"):
        events.prompt(at)


def _calls(message: dict[str, Any], at: int | None) -> list[Call]:
    return [
        Call(
            id=as_id(call.get("id")),
            tool=as_string(call.get("name")),
            args=as_arguments(call.get("arguments")),
            at=at,
        )
        for call in as_objects(message.get("tool_calls"))
        if call.get("requestor") != "user"
    ]


def _result(answer: dict[str, Any], at: int | None) -> Result:
    failed = answer.get("error")
    told = isinstance(failed, bool)
    return Result(
        call=as_id(answer.get("id")),
        text=as_text(answer.get("content")),
        ok=not failed if told else None,
        known="explicit" if told else "unknown",
        at=from_iso(answer.get("timestamp")) or at,
    )


def _success(run: dict[str, Any]) -> bool | None:
    reward = as_number(as_object(run.get("reward_info")).get("reward"))
    return None if reward is None else reward >= 1
