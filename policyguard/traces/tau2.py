"""tau2-bench results: one JSON document with a list of simulations, each a session."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from policyguard.model.event import Started
from policyguard.traces import usage
from policyguard.traces.arguments import as_arguments
from policyguard.traces.content import as_text
from policyguard.traces.importer import Met
from policyguard.traces.item import Item, Skipped
from policyguard.traces.session import Call, Result, SessionEvents
from policyguard.traces.shape import as_id, as_list, as_number, as_object, as_objects, as_string
from policyguard.traces.source import Sample, Source
from policyguard.traces.times import from_iso

FORMAT = "tau2"


def detect(sample: Sample) -> bool:
    """A document with `simulations`, of which one has messages."""
    runs = as_objects(as_object(sample.document).get("simulations"))
    return any(isinstance(run.get("messages"), list) for run in runs)


def read(source: Source, met: Met) -> Iterator[Item]:
    """One session a simulation; one that was met before, in this file or another, is Skipped."""
    document = as_object(source.sample.document)
    agent = as_object(as_object(document.get("info")).get("agent_info")).get("implementation")
    for index, run in enumerate(as_list(document.get("simulations"))):
        if not isinstance(run, dict) or not isinstance(run.get("messages"), list):
            yield Skipped(source.file, None, f"simulation {index}: no messages")
            continue
        name = as_id(run.get("id"))
        if name in met:
            reason = f"simulation `{name}`: met before in {met[name]}, counted once"
            yield Skipped(source.file, None, reason)
            continue
        if name:
            met[name] = source.file
        started = Started(
            session=name or f"{source.name}:{index}",
            at=from_iso(run.get("start_time")),
            agent=as_string(agent),
        )
        yield from _session(source, SessionEvents(source.file, started), run)


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
