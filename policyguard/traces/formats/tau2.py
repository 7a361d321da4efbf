"""Results of tau2-bench: a JSON document with a list of simulations, each a session.

In a folder of results, the list in `results.json` is empty and `simulations/` has one document per
simulation.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

import msgspec

from policyguard.model.event import SessionStarted
from policyguard.traces.containers.content import UNLIMITED, PlainFile, read_bytes
from policyguard.traces.containers.source import Sample, Source
from policyguard.traces.item import Item, Skipped, UnreadableError
from policyguard.traces.parsing.json_shape import (
    as_id,
    as_list,
    as_number,
    as_object,
    as_objects,
    as_string,
)
from policyguard.traces.parsing.measurements import count_tokens, from_iso, read_cost
from policyguard.traces.parsing.message_content import as_text
from policyguard.traces.session_builder import ImportedCall, ImportedResult, SessionBuilder

FORMAT = "tau2"

_INDEX_KEY = "simulation_index"
_OUTCOME_KEYS = ("reward_info", "termination_reason")


class _ResultsFile(msgspec.Struct):
    """The part of `results.json` that simulations in separate files need."""

    info: object = None


class _RunHead(msgspec.Struct):
    id: object = None


class _DocumentHead(_RunHead):
    """The ids of a document, one simulation or a list of them."""

    simulations: list[_RunHead] = []


_SIGNS_OF_KEYS = (b'"simulations"', b'"task_id"', rb"\u00", b"\0")
"""A document without all of these has none of the keys of `detect`, nor an escaped one."""

_document_decoder = msgspec.json.Decoder(_DocumentHead)


def find_ids(file: BinaryIO, max_bytes: int) -> frozenset[str] | None:
    """Return the ids of the simulations in a file, which may be of another format.

    Much faster than to read them. None if that needs reading them, or if a document has more than
    `max_bytes`. Raises `OSError`, `UnreadableError`.
    """
    data = file.readline(max_bytes)
    if data.startswith(b"["):
        return frozenset()
    second = file.readline(max_bytes - len(data))
    document = _decode_head(data) if second else None
    if document is None:
        data += second + file.read(max_bytes - len(data) - len(second))
        if len(data) < max_bytes and data.startswith(b"{") and not _may_have_keys(data):
            return frozenset()
        document = _decode_head(data) if len(data) < max_bytes else None
    elif second.strip() or any(map(bytes.strip, file)):
        return frozenset()  # lines, each a JSON text, are no document
    if document is None:
        return None
    if not _may_have_keys(data):
        return frozenset()
    runs = (document, *document.simulations)
    return frozenset(filter(None, (as_id(run.id) for run in runs)))


def _may_have_keys(data: bytes) -> bool:
    return any(sign in data for sign in _SIGNS_OF_KEYS)  # many times faster than a pattern


def _decode_head(data: bytes) -> _DocumentHead | None:
    try:
        return _document_decoder.decode(data)
    except (msgspec.MsgspecError, RecursionError, UnicodeError):
        return None


def detect(sample: Sample) -> bool:
    """Return whether the document has `simulations`, here or in other files, or is one."""
    document = as_object(sample.document)
    if "simulations" in document:
        runs = as_objects(document["simulations"])
        return any(map(_has_messages, runs)) or isinstance(document.get(_INDEX_KEY), list)
    has_outcome = any(map(document.get, _OUTCOME_KEYS))
    return "task_id" in document and has_outcome and _has_messages(document)


def _has_messages(run: dict[str, Any]) -> bool:
    return any(isinstance(run.get(key), list) for key in ("messages", "ticks"))


def read(source: Source) -> Iterator[Item]:
    """Yield one session per simulation; skip one that was already read, from any file."""
    document = as_object(source.sample.document)
    if "simulations" not in document:
        agent = _agent_of_folder(source.path)
        yield from _read_simulation(source, document, source.name, agent)
        return
    agent = _agent_name(document.get("info"))
    for index, run in enumerate(as_list(document["simulations"])):
        yield from _read_simulation(source, run, f"{source.name}:{index}", agent)
    if not document["simulations"]:
        yield Skipped(source.file, None, "its simulations are in separate files")


def _read_simulation(source: Source, run: object, fallback_id: str, agent: str) -> Iterator[Item]:
    """Yield one simulation; `fallback_id` names it if it has no id."""
    name = as_id(as_object(run).get("id"))
    reason = _skip_reason(as_object(run))
    if reason is None and name in source.seen_ids:
        reason = f"already read in {source.seen_ids[name]}, counted once"
    if reason is not None:
        yield Skipped(source.file, None, f"simulation `{name or fallback_id}`: {reason}")
        return
    if name:
        source.seen_ids[name] = source.file
    started = SessionStarted(session=name or fallback_id, agent=agent)
    yield from _read_session(source, SessionBuilder(source.file, started), as_object(run))


def _skip_reason(run: dict[str, Any]) -> str | None:
    """Return why a simulation is not read, if it is not.

    In a full-duplex run both sides speak at once, so it has no turns.
    """
    if not run.get("messages") and run.get("ticks"):
        return "full-duplex runs (`ticks`) are not supported"
    return None if isinstance(run.get("messages"), list) else "no messages"


def _agent_name(info: object) -> str:
    return as_string(as_object(as_object(info).get("agent_info")).get("implementation"))


def _agent_of_folder(path: Path) -> str:
    """Return the agent of a simulation in a folder of results; empty elsewhere."""
    if path.parent.name != "simulations":
        return ""
    try:
        data = read_bytes(PlainFile(path.parent.parent / "results.json").open(), UNLIMITED)
        return _agent_name(msgspec.json.decode(data, type=_ResultsFile).info)
    except (OSError, UnreadableError, msgspec.DecodeError, RecursionError):
        return ""


def _read_session(source: Source, builder: SessionBuilder, run: dict[str, Any]) -> Iterator[Item]:
    for index, message in enumerate(run["messages"]):
        if not isinstance(message, dict):
            reason = f"session `{builder.session}`, message {index}: not an object"
            yield Skipped(source.file, None, reason)
        else:
            yield from _read_message(builder, message)
    yield from builder.close(_success(run), from_iso(run.get("end_time")))


def _read_message(builder: SessionBuilder, message: dict[str, Any]) -> Iterator[Item]:
    at = from_iso(message.get("timestamp"))
    role = message.get("role")
    if role == "assistant":
        tokens, cost = (count_tokens(message.get("usage")), read_cost(message.get("cost")))
        yield from builder.add_reply(tokens, cost, at)
        yield from builder.add_calls(_parse_calls(message, at))
    elif role == "tool":
        for answer in as_objects(message.get("tool_messages", [message])):
            if answer.get("requestor") != "user":
                yield from builder.add_result(_parse_result(answer, at))
    elif role == "user" and not message.get("tool_calls"):
        builder.add_prompt(at)


def _parse_calls(message: dict[str, Any], at: int | None) -> list[ImportedCall]:
    return [
        ImportedCall.parse(call.get("id"), call.get("name"), call.get("arguments"), at)
        for call in as_objects(message.get("tool_calls"))
        if call.get("requestor") != "user"
    ]


def _parse_result(answer: dict[str, Any], at: int | None) -> ImportedResult:
    failed = answer.get("error")
    is_known = isinstance(failed, bool)
    return ImportedResult(
        call=as_id(answer.get("id")),
        text=as_text(answer.get("content")),
        ok=not failed if is_known else None,
        provenance="explicit" if is_known else "unknown",
        at=from_iso(answer.get("timestamp")) or at,
    )


def _success(run: dict[str, Any]) -> bool | None:
    reward = as_number(as_object(run.get("reward_info")).get("reward"))
    return None if reward is None else reward >= 1
