"""Gemini CLI sessions: a JSON document with `messages`, or in newer versions a message per line.

`~/.gemini/tmp/<project>/chats/session-*.json` or `.jsonl`. Gemini rewrites a message under its id
when it grows: the last version counts.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from policyguard.model.event import SessionStarted
from policyguard.traces.containers.source import Sample, Source
from policyguard.traces.item import Item, Skipped
from policyguard.traces.parsing.json_shape import (
    as_amount,
    as_id,
    as_list,
    as_object,
    as_objects,
    as_string,
)
from policyguard.traces.parsing.measurements import from_iso
from policyguard.traces.parsing.message_content import as_text
from policyguard.traces.session_builder import ImportedCall, ImportedResult, SessionBuilder

FORMAT = "gemini-cli"

_MESSAGE_TYPES = ("user", "gemini")
_NOTICE_TYPES = ("info", "warning", "error")
"""Messages that the program shows to the user and not to the model."""

_HARNESS_PREFIXES = ("System: Please continue.",)
"""How messages of type user begin that the program writes."""

_STATUS_SUCCESS = {"success": True, "error": False, "cancelled": None}
"""Whether a call succeeded; not known if the user stopped it."""

_SHOWN_MCP_TOOL = re.compile(r"(?s)(?P<tool>[^ ]+) \((?P<server>.+) MCP Server\)")
"""How Gemini shows a tool of an MCP server; the name that the model uses differs by version."""

_SHELL_TOOL = "run_shell_command"
_OUTPUT_FOOTER = re.compile(
    r"(?:\nExit Code: (?P<code>-?\d{1,10}|\(none\)))?(?P<signal>\nSignal: .*)?"
    r"(?:\nBackground PIDs: .*)?(?:\nProcess Group PGID: .*)?\Z"
)
"""The footer that Gemini adds to a command's output; its numbers differ from call to call."""


def detect(sample: Sample) -> bool:
    """Return whether a line is the header of a session or a message of Gemini."""
    messages = as_objects(as_object(sample.document).get("messages"))
    lines = (*sample.records, sample.document, *messages)
    return any(_is_typical(as_object(line)) for line in lines)


def _is_typical(line: dict[str, Any]) -> bool:
    if "sessionId" in line and "projectHash" in line:
        return True
    data = line.get("tokens", line.get("toolCalls"))
    return line.get("type") == "gemini" and isinstance(data, dict | list)


def read(source: Source) -> Iterator[Item]:
    """Yield the session of a file, after its last line: any message may be rewritten."""
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
            update = as_object(line["$set"])
            head = {**head, "lastUpdated": update.get("lastUpdated")}
            _store_messages(messages, as_list(update.get("messages")))
        elif isinstance(line, dict) and (line.get("type") in _MESSAGE_TYPES or "messages" in line):
            _store_messages(messages, as_list(line.get("messages", [line])))
        elif not isinstance(line, dict) or not (
            line.get("type") in _NOTICE_TYPES or _is_command(line)
        ):
            yield Skipped(source.file, number, "not a message of a session")
    started = SessionStarted(session=source.name, agent=FORMAT)
    builder = SessionBuilder(source.file, started)
    called_ids: set[str] = set()
    for message in messages.values():
        yield from _read_message(source, builder, message, called_ids)
    yield from builder.close()


def _is_command(line: dict[str, Any]) -> bool:
    """Return whether a line is a command like `$rewindTo`; rewound messages stay."""
    return any(key.startswith("$") for key in line)


def _store_messages(messages: dict[object, dict[str, Any]], written: list[Any]) -> None:
    """Store each message at the position of its first version, with the content of its last."""
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
    calls = []
    for call in as_objects(message.get("toolCalls")):
        name = as_id(call.get("id"))
        if name and name in called_ids:
            reason = f"session `{builder.session}`: call `{name}` repeated"
            yield Skipped(source.file, None, reason)
            continue
        called_ids.add(name)
        calls.append(call)
    yield from builder.add_calls(
        [
            ImportedCall.parse(
                raw.get("id"), raw.get("name"), raw.get("args"), at, *_parse_server(raw)
            )
            for raw in calls
        ]
    )
    for call in calls:
        if call.get("result") is not None or as_string(call.get("status")) in _STATUS_SUCCESS:
            yield from builder.add_result(_parse_result(call))


def _parse_server(call: dict[str, Any]) -> tuple[str, str]:
    """Return the server of an MCP tool and the tool's own name; empty for other tools."""
    shown = _SHOWN_MCP_TOOL.fullmatch(as_string(call.get("displayName")))
    return (shown["server"], shown["tool"]) if shown else ("", "")


def _message_text(content: object) -> str:
    """Return the text of a message, without the tool results in messages of type user."""
    if isinstance(content, str):
        return content
    return "\n".join(as_string(part.get("text")) for part in as_objects(content))


def _parse_result(call: dict[str, Any]) -> ImportedResult:
    status = as_string(call.get("status"))
    ok = _STATUS_SUCCESS.get(status)
    is_cancelled = status == "cancelled"
    response, error = _parse_response(call.get("result"))
    code = None
    if call.get("name") == _SHELL_TOOL:
        response, code = _split_footer(response)
    # Gemini's own success only means that the command ran.
    if code is not None and ok is not False and not is_cancelled:
        ok = code == 0
    return ImportedResult(
        call=as_id(call.get("id")),
        text=response,
        ok=ok,
        provenance="unknown" if ok is None and not is_cancelled else "explicit",
        at=from_iso(call.get("timestamp")),
        error=error if ok is False else None,
        exit_code=None if is_cancelled else code,
        state="cancelled" if is_cancelled else "",
    )


def _split_footer(text: str) -> tuple[str, int | None]:
    """Return a command's output and exit code; only older versions write 0."""
    footer = _OUTPUT_FOOTER.search(text)
    if footer is None or not footer[0]:
        return text, None
    code, signal = footer["code"], footer["signal"] or ""
    exit_code = None if code in (None, "(none)") else int(code)
    return text[: footer.start()] + signal, exit_code


def _parse_response(result: object) -> tuple[str, str | None]:
    if not isinstance(result, list):
        return as_text(result), None
    texts: list[str] = []
    error: str | None = None
    for part in result:
        answer = as_object(as_object(part).get("functionResponse"))
        response = answer.get("response")
        fields = as_object(response)
        if "error" in fields:
            error = as_text(fields["error"])
        content = fields.get("output", fields.get("error", response))
        texts.append(as_text(content if answer else [part]))
    return "\n".join(texts), error
