"""Message lists in any wrapping, each read as one conversation."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from policyguard.traces.containers.source import Sample, Source
from policyguard.traces.item import Skipped
from policyguard.traces.parsing.json_shape import as_id, as_list, as_number, as_object

ROLES = ("system", "developer", "user", "assistant", "tool", "function")
"""The roles of the API's messages."""


class Conversation(msgspec.Struct, frozen=True):
    """The messages of one session.

    `line` is its line in a file of lines. `usage` and `cost` are those of the last message, the
    only ones in a log of requests.
    """

    session: str
    messages: list[Any]
    line: int | None = None
    is_tau_bench: bool = False
    success: bool | None = None
    usage: object = None
    cost: object = None


def has_conversations(sample: Sample) -> bool:
    """Return whether the document, or most of its rows or lines, are conversations or messages."""
    if find_messages(sample.document) is not None or _has_message_lines(sample):
        return True
    rows = as_list(sample.document) or sample.records
    return _is_majority(
        [find_messages(row) is not None or _is_empty_run(row) for row in _rows_of(rows)]
    )


def _has_message_lines(sample: Sample) -> bool:
    return _is_majority([as_object(line).get("role") in ROLES for line in _rows_of(sample.records)])


def _is_empty_run(row: object) -> bool:
    """Return whether the row is a tau-bench run that ended before its first message."""
    return as_object(row).get("traj") == []


def _rows_of(rows: Iterable[object]) -> list[object]:
    return [row for row in rows if not _is_header(row)]


def _is_majority(flags: list[bool]) -> bool:
    return 2 * sum(flags) > len(flags)


def find_messages(value: object) -> list[Any] | None:
    """Return the messages in a list, in an object or its `request`, or in a row of tau-bench."""
    holder = as_object(value)
    holder = {**as_object(holder.get("request")), **holder}
    messages = value if isinstance(value, list) else holder.get("messages", holder.get("traj"))
    if not isinstance(messages, list):
        return None
    has_role = any(as_object(message).get("role") in ROLES for message in messages)
    return messages if has_role else None


def iter_conversations(source: Source) -> Iterator[Conversation | Skipped]:
    """Yield the conversations of a file, in its order. Raises `OSError`."""
    used_ids: set[str] = set()
    for row in _iter_rows(source):
        if isinstance(row, Skipped):
            yield row
            continue
        messages = find_messages(row.value)
        if messages is not None:
            conversation = _make_conversation(row, messages)
            # A file joined from several runs repeats their tasks and trials.
            if conversation.session in used_ids:
                conversation = msgspec.structs.replace(conversation, session=row.name)
            used_ids.add(conversation.session)
            yield conversation
        elif not _is_header(row.value):
            yield Skipped(source.file, row.line, f"session `{row.name}`: no messages")


class _Row(msgspec.Struct, frozen=True):
    name: str
    line: int | None
    value: object


def _iter_rows(source: Source) -> Iterator[_Row | Skipped]:
    document = source.sample.document
    if find_messages(document) is not None:
        yield _Row(source.name, None, document)
    elif _has_message_lines(source.sample):
        yield from _join_lines(source)
    elif isinstance(document, list):
        for index, value in enumerate(document):
            yield _Row(f"{source.name}:{index}", None, value)
    else:
        for entry in source.lines():
            if isinstance(entry, Skipped):
                yield entry
            else:
                line, value = entry
                yield _Row(f"{source.name}:{line - 1}", line, value)


def _join_lines(source: Source) -> Iterator[_Row | Skipped]:
    """Yield one row of a file in which each line is a message."""
    messages: list[object] = []
    for entry in source.lines():
        if isinstance(entry, Skipped):
            yield entry
        else:
            messages += _rows_of(entry[1:])
    yield _Row(source.name, None, messages)


def _make_conversation(row: _Row, messages: list[Any]) -> Conversation:
    wrapping = as_object(row.value)
    if "traj" in wrapping:
        reward = as_number(wrapping.get("reward"))
        task, trial = as_id(wrapping.get("task_id")), as_id(wrapping.get("trial"))
        return Conversation(
            f"{task}/{trial}" if task else row.name,
            messages,
            row.line,
            is_tau_bench=True,
            success=None if reward is None else reward >= 1,
        )
    response = as_object(wrapping.get("response"))
    answers = [as_object(choice).get("message") for choice in as_list(response.get("choices"))]
    return Conversation(
        row.name,
        [*messages, *answers[:1]],
        row.line,
        usage=response.get("usage"),
        cost=wrapping.get("cost") if response else None,
    )


def _is_header(row: object) -> bool:
    return isinstance(row, dict) and set(row) == {"metadata"}
