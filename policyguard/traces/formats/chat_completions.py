"""Message lists of OpenAI's chat-completions API and compatible ones, and tau-bench's."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from policyguard.model.event import SessionStarted
from policyguard.traces.containers.source import Sample, Source
from policyguard.traces.item import Item, Skipped
from policyguard.traces.parsing import tool_blocks
from policyguard.traces.parsing.json_shape import (
    as_id,
    as_list,
    as_number,
    as_object,
    as_objects,
    as_string,
)
from policyguard.traces.parsing.measurements import count_tokens, read_cost
from policyguard.traces.parsing.message_content import as_text
from policyguard.traces.session_builder import ImportedCall, ImportedResult, SessionBuilder

FORMAT = "chat-completions"

_TAU_BENCH_ERROR_PREFIXES = ("Error", "Unknown action ")
"""How a failed result of tau-bench begins: an error of a tool, or an unknown tool."""

_ROLES = ("system", "developer", "user", "assistant", "tool", "function")
"""The roles of the API's messages."""


def detect(sample: Sample) -> bool:
    """Return whether a document, a row or a line has messages with the API's roles."""
    if _find_messages(sample.document) is not None or _has_message_lines(sample):
        return True
    rows = as_list(sample.document) or sample.records
    return _is_majority(
        [_find_messages(row) is not None or _is_empty_run(row) for row in _rows_of(rows)]
    )


def read(source: Source) -> Iterator[Item]:
    """Yield one session per conversation."""
    for conversation in _iter_conversations(source):
        if isinstance(conversation, Skipped):
            yield conversation
        elif conversation.is_tau_bench and _has_text_calls(conversation):
            reason = "calls written as text (`react`, `act`) are not supported"
            session = f"session `{conversation.session}`"
            yield Skipped(source.file, conversation.line, f"{session}: {reason}")
        else:
            yield from _read_session(source, conversation)


def _has_text_calls(conversation: _Conversation) -> bool:
    """Return whether calls and results are message text: tau-bench's `react` and `act`."""
    messages = as_objects(conversation.messages)
    texts = (message.get("content") for message in messages if message.get("role") == "user")
    return any(as_string(text).startswith("API output: ") for text in texts)


def _read_session(source: Source, conversation: _Conversation) -> Iterator[Item]:
    builder = SessionBuilder(source.file, SessionStarted(session=conversation.session))
    last = len(conversation.messages) - 1
    for index, message in enumerate(conversation.messages):
        if not isinstance(message, dict) or message.get("role") not in _ROLES:
            reason = f"session `{conversation.session}`, message {index}: unknown role"
            yield Skipped(source.file, conversation.line, reason)
            continue
        if message["role"] == "assistant":
            used, paid = (conversation.usage, conversation.cost) if index == last else (None, None)
            yield from builder.add_reply(count_tokens(used), read_cost(paid))
            if calls := _parse_calls(message):
                builder.drop_open_calls()
                yield from builder.add_calls(calls)
            continue
        results = _parse_results(message, conversation.is_tau_bench)
        for result in results:
            yield from builder.add_result(result, conversation.line)
        if message["role"] == "user" and not results:
            builder.add_prompt()
    yield from builder.close(conversation.success)


def _parse_calls(message: dict[str, Any]) -> list[ImportedCall]:
    """Return the message's `tool_calls`, their older form, or blocks of its content."""
    tool_calls = as_objects(message.get("tool_calls")) or as_objects([message.get("function_call")])
    calls = [_parse_call(call) for call in tool_calls]
    return calls or tool_blocks.parse_calls(as_objects(message.get("content")))


def _parse_call(call: dict[str, Any]) -> ImportedCall:
    function = call.get("function", call.get("custom"))
    holder = function if isinstance(function, dict) else call
    args = (holder[key] for key in ("arguments", "args", "input") if key in holder)
    tool = as_string(function) or holder.get("name")
    return ImportedCall.parse(call.get("id"), tool, next(args, None))


def _parse_results(message: dict[str, Any], is_tau_bench: bool) -> list[ImportedResult]:
    blocks = tool_blocks.parse_results(as_objects(message.get("content")))
    if blocks or message["role"] not in ("tool", "function"):
        return blocks
    call, text = as_id(message.get("tool_call_id")), as_text(message.get("content"))
    if is_tau_bench:
        return [
            ImportedResult(
                call, text, ok=not text.startswith(_TAU_BENCH_ERROR_PREFIXES), provenance="inferred"
            )
        ]
    if "error" in message:
        error = message["error"]
        detail = as_text(error) if error and error is not True else ""
        return [ImportedResult(call, text, not error, "explicit", error=detail or None)]
    return [ImportedResult(call, text)]


class _Conversation(msgspec.Struct, frozen=True):
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


def _has_message_lines(sample: Sample) -> bool:
    return _is_majority(
        [as_object(line).get("role") in _ROLES for line in _rows_of(sample.records)]
    )


def _is_empty_run(row: object) -> bool:
    """Return whether the row is a tau-bench run that ended before its first message."""
    return as_object(row).get("traj") == []


def _rows_of(rows: Iterable[object]) -> list[object]:
    return [row for row in rows if not _is_header(row)]


def _is_majority(flags: list[bool]) -> bool:
    return 2 * sum(flags) > len(flags)


def _find_messages(value: object) -> list[Any] | None:
    """Return the messages in a list, in an object or its `request`, or in a row of tau-bench."""
    holder = as_object(value)
    holder = {**as_object(holder.get("request")), **holder}
    messages = value if isinstance(value, list) else holder.get("messages", holder.get("traj"))
    if not isinstance(messages, list):
        return None
    has_role = any(as_object(message).get("role") in _ROLES for message in messages)
    return messages if has_role else None


def _iter_conversations(source: Source) -> Iterator[_Conversation | Skipped]:
    """Yield the conversations of a file, in its order. Raises `OSError`."""
    used_ids: set[str] = set()
    for row in _iter_rows(source):
        if isinstance(row, Skipped):
            yield row
            continue
        messages = _find_messages(row.value)
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
    if _find_messages(document) is not None:
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


def _make_conversation(row: _Row, messages: list[Any]) -> _Conversation:
    wrapping = as_object(row.value)
    if "traj" in wrapping:
        reward = as_number(wrapping.get("reward"))
        task, trial = as_id(wrapping.get("task_id")), as_id(wrapping.get("trial"))
        return _Conversation(
            f"{task}/{trial}" if task else row.name,
            messages,
            row.line,
            is_tau_bench=True,
            success=None if reward is None else reward >= 1,
        )
    response = as_object(wrapping.get("response"))
    answers = [as_object(choice).get("message") for choice in as_list(response.get("choices"))]
    return _Conversation(
        row.name,
        [*messages, *answers[:1]],
        row.line,
        usage=response.get("usage"),
        cost=wrapping.get("cost") if response else None,
    )


def _is_header(row: object) -> bool:
    return isinstance(row, dict) and set(row) == {"metadata"}
