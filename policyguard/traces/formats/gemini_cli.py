"""Gemini CLI sessions: a JSON document with `messages`, or in newer versions a message a line.

`~/.gemini/tmp/<project>/chats/session-*.json` or `.jsonl`. A message is written again, under its
id, when more of it is known: the last one holds.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from policyguard.model.event import Started
from policyguard.traces.containers.source import Sample, Source
from policyguard.traces.importer import SeenIds
from policyguard.traces.item import Item, Skipped
from policyguard.traces.parsing.arguments import as_arguments
from policyguard.traces.parsing.json_shape import (
    as_amount,
    as_id,
    as_list,
    as_object,
    as_objects,
    as_string,
)
from policyguard.traces.parsing.message_content import as_text
from policyguard.traces.parsing.timestamps import from_iso
from policyguard.traces.session_builder import ImportedCall, ImportedResult, SessionBuilder

FORMAT = "gemini-cli"

_MESSAGE_TYPES = ("user", "gemini")
_NOTICE_TYPES = ("info", "warning", "error")
"""What the program shows to the person, and not to the model."""

_HARNESS_PREFIXES = ("System: Please continue.",)
"""How messages of type user begin that the program writes."""

_STATUS_SUCCESS = {"success": True, "error": False, "cancelled": False}

_SHELL_TOOL = "run_shell_command"
_OUTPUT_FOOTER = re.compile(
    r"(?:\nExit Code: (?P<code>-?\d{1,10}|\(none\)))?(?P<signal>\nSignal: .*)?"
    r"(?:\nBackground PIDs: .*)?(?:\nProcess Group PGID: .*)?\Z"
)
"""What Gemini puts below what a command printed: numbers that differ from call to call."""


def detect(sample: Sample) -> bool:
    """The head of a session with its `projectHash`, or a message of Gemini's."""
    messages = as_objects(as_object(sample.document).get("messages"))
    lines = (*sample.records, sample.document, *messages)
    return any(_is_typical(as_object(line)) for line in lines)


def _is_typical(line: dict[str, Any]) -> bool:
    if "sessionId" in line and "projectHash" in line:
        return True
    return line.get("type") == "gemini" and isinstance(
        line.get("tokens", line.get("toolCalls")), dict | list
    )


def read(source: Source, seen_ids: SeenIds) -> Iterator[Item]:
    """The one session of a file. Its messages are held until its end: any may be written again."""
    head: dict[str, Any] = {}
    messages: dict[object, dict[str, Any]] = {}
    for entry in source.values():
        if isinstance(entry, Skipped):
            yield entry
            continue
        number, line = entry
        if isinstance(line, dict) and "projectHash" in line:
            head = head or line
            _store_messages(messages, as_list(line.get("messages")))
        elif isinstance(line, dict) and "$set" in line:
            changed = as_object(line["$set"])
            head = {**head, "lastUpdated": changed.get("lastUpdated")}
            _store_messages(messages, as_list(changed.get("messages")))
        elif isinstance(line, dict) and (line.get("type") in _MESSAGE_TYPES or "messages" in line):
            _store_messages(messages, as_list(line.get("messages", [line])))
        elif not isinstance(line, dict) or not (
            line.get("type") in _NOTICE_TYPES or _is_command(line)
        ):
            yield Skipped(source.file, number, "no message of a session")
    started = Started(session=source.name, at=from_iso(head.get("startTime")), agent=FORMAT)
    events = SessionBuilder(source.file, started)
    yield from events.start()
    called: set[str] = set()
    for message in messages.values():
        yield from _read_message(source, events, message, called)
    yield from events.close(at=from_iso(head.get("lastUpdated")))


def _is_command(line: dict[str, Any]) -> bool:
    """Lines such as `$rewindTo`: what was rewound did happen, and stays."""
    return any(key.startswith("$") for key in line)


def _store_messages(messages: dict[object, dict[str, Any]], written: list[Any]) -> None:
    """Each message in the place where it was written first, as it was written last."""
    for message in written:
        if isinstance(message, dict) and message.get("type") in _MESSAGE_TYPES:
            messages[as_id(message.get("id")) or object()] = message


def _read_message(
    source: Source, builder: SessionBuilder, message: dict[str, Any], called_ids: set[str]
) -> Iterator[Item]:
    at = from_iso(message.get("timestamp"))
    if message["type"] == "user":
        text = _message_text(message.get("content")).strip()
        if text and not text.startswith(_HARNESS_PREFIXES):
            builder.add_prompt(at)
        return
    tokens = as_amount(as_object(message.get("tokens")).get("total"))
    yield from builder.add_reply(int(tokens or 0), at=at)
    fresh = []
    for told in as_objects(message.get("toolCalls")):
        name = as_id(told.get("id"))
        if name and name in called_ids:
            reason = f"session `{builder.session}`: call `{name}` for a second time"
            yield Skipped(source.file, None, reason)
            continue
        called_ids.add(name)
        fresh.append(told)
    yield from builder.add_calls([_parse_call(told, at) for told in fresh])
    for told in fresh:
        if told.get("result") is not None or as_string(told.get("status")) in _STATUS_SUCCESS:
            yield from builder.add_result(_parse_result(told))


def _message_text(content: object) -> str:
    """The text of a message. Answers of tools, which messages of type user hold too, are none."""
    if isinstance(content, str):
        return content
    return "\n".join(as_string(part.get("text")) for part in as_objects(content))


def _parse_call(told: dict[str, Any], at: int | None) -> ImportedCall:
    return ImportedCall(
        id=as_id(told.get("id")),
        tool=as_string(told.get("name")),
        args=as_arguments(told.get("args")),
        at=at,
    )


def _parse_result(told: dict[str, Any]) -> ImportedResult:
    ok = _STATUS_SUCCESS.get(as_string(told.get("status")))
    response, error = _parse_response(told.get("result"))
    code = None
    if told.get("name") == _SHELL_TOOL:
        response, code = _split_footer(response)
    # Gemini's own success is that the command was run, however it ended.
    if code is not None and ok is not False:
        ok = code == 0
    return ImportedResult(
        call=as_id(told.get("id")),
        text=response,
        ok=ok,
        provenance="unknown" if ok is None else "explicit",
        at=from_iso(told.get("timestamp")),
        error=error if ok is False else None,
        exit_code=code,
    )


def _split_footer(text: str) -> tuple[str, int | None]:
    """What a command printed, and its exit code: 0 is written by older versions only."""
    ending = _OUTPUT_FOOTER.search(text)
    if ending is None or not ending[0]:
        return text, None
    code, signal = ending["code"], ending["signal"] or ""
    told = None if code in (None, "(none)") else int(code)
    return text[: ending.start()] + signal, told


def _parse_response(result: object) -> tuple[str, str | None]:
    """The text that the model saw, and the error in it."""
    if not isinstance(result, list):
        return as_text(result), None
    texts: list[str] = []
    error: str | None = None
    for part in result:
        answer = as_object(as_object(part).get("functionResponse"))
        response = answer.get("response")
        told = as_object(response)
        if "error" in told:
            error = as_text(told["error"])
        texts.append(as_text(told.get("output", told.get("error", response)) if answer else [part]))
    return "\n".join(texts), error
