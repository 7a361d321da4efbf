"""mini-swe-agent `.traj.json` files, versions 1 and 2: a JSON document with one session, one turn.

Version 1 writes commands into message texts; version 2 makes tool calls and lists the executed
commands in `extra.actions`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any

from policyguard.model.event import SessionStarted
from policyguard.traces.containers.source import Sample, Source
from policyguard.traces.item import Item, Skipped
from policyguard.traces.parsing.json_shape import (
    as_exit_code,
    as_id,
    as_list,
    as_object,
    as_objects,
    as_string,
)
from policyguard.traces.parsing.measurements import count_tokens, from_seconds, read_cost
from policyguard.traces.parsing.message_content import as_text
from policyguard.traces.session_builder import ImportedCall, ImportedResult, SessionBuilder

FORMAT = "mini-swe-agent"

_VERSION_1 = "mini-swe-agent-1"

_FENCE_REGEX = re.compile(r"```(\w+)\\s\*\\n\(\.\*\?\)\\n```")
"""Regexes for finding the command that match a fence with a tag, like all that are shipped."""

_RETURN_CODE = re.compile(r"\s*<returncode>(-?\d{1,10})</returncode>")
_TIMEOUT_PREFIX = "The last command <command>"

_CommandParser = Callable[[dict[str, Any]], list[ImportedCall]]


def detect(sample: Sample) -> bool:
    """Return whether the document has the `trajectory_format`, or predates that key."""
    document = as_object(sample.document)
    return _version(document).startswith(FORMAT) and isinstance(document.get("messages"), list)


def _version(document: dict[str, Any]) -> str:
    """Return the recorded version; the first versions record none."""
    if "trajectory_format" not in document and "model_stats" in as_object(document.get("info")):
        return _VERSION_1
    return as_string(document.get("trajectory_format"))


def read(source: Source) -> Iterator[Item]:
    """Yield the run's session, in which `user` messages are observations."""
    document = as_object(source.sample.document)
    info = as_object(document.get("info"))
    config = as_object(info.get("config"))
    commands = _choose_parser(_version(document), config)
    if commands is None:
        reason = "the run finds its commands with a custom regex, which is not supported"
        yield Skipped(source.file, None, reason)
        return
    started = SessionStarted(
        session=as_id(document.get("instance_id")) or source.name,
        agent=FORMAT,
        cwd=as_string(as_object(config.get("environment")).get("cwd")),
    )
    builder = SessionBuilder(source.file, started)
    builder.add_prompt()
    messages = as_list(document.get("messages"))
    for index, message in enumerate(messages):
        if not isinstance(message, dict):
            yield Skipped(source.file, None, f"message {index}: not an object")
        elif message.get("role") == "assistant" or message.get("object") == "response":
            yield from _read_reply(builder, message, commands)
        # The last message of a run that has ended is the submission or an error.
        elif not (info.get("exit_status") and message is messages[-1]):
            yield from _read_observation(builder, message)
    yield from builder.close()


def _choose_parser(version: str, config: dict[str, Any]) -> _CommandParser | None:
    """Return a parser for the commands of a message; None for an unsupported regex."""
    if version != _VERSION_1:
        return _parse_actions
    expression = as_object(config.get("agent")).get("action_regex")
    fenced = _FENCE_REGEX.fullmatch(as_string(expression))
    if expression is not None and fenced is None:
        return None
    tag = fenced[1] if fenced else "bash"

    def parse_text(message: dict[str, Any]) -> list[ImportedCall]:
        command = find_command(as_text(message.get("content")), tag)
        return [] if command is None else [ImportedCall("", "bash", {"command": command})]

    return parse_text


def _parse_actions(message: dict[str, Any]) -> list[ImportedCall]:
    extra = as_object(message.get("extra"))
    at = from_seconds(extra.get("timestamp"))
    return [
        ImportedCall(
            as_id(action.get("tool_call_id")), "bash", {"command": action.get("command")}, at
        )
        for action in as_objects(extra.get("actions"))
    ]


def _read_reply(
    builder: SessionBuilder, message: dict[str, Any], parse_commands: _CommandParser
) -> Iterator[Item]:
    extra = as_object(message.get("extra"))
    counts = as_object(as_object(extra.get("response")).get("usage"))
    cost = extra.get("cost")
    yield from builder.add_reply(
        count_tokens(counts),
        read_cost(counts.get("cost") if cost is None else cost),
        from_seconds(extra.get("timestamp")),
    )
    yield from builder.add_calls(parse_commands(message))


def _read_observation(builder: SessionBuilder, message: dict[str, Any]) -> Iterator[Item]:
    result = _parse_result(message)
    # The task, and errors about malformed messages, answer no call and have no exit code.
    if builder.has_open_calls or result.exit_code is not None:
        yield from builder.add_result(result)


def _parse_result(message: dict[str, Any]) -> ImportedResult:
    extra = as_object(message.get("extra"))
    text = as_text(message.get("content", message.get("output")))
    exception = as_string(extra.get("exception_info"))
    code = _exit_code(extra, text)
    timed_out = text.startswith(_TIMEOUT_PREFIX)
    is_known = code is not None or bool(exception)
    return ImportedResult(
        call=as_id(message.get("tool_call_id")) or as_id(message.get("call_id")),
        text=text,
        ok=code == 0 and not exception if is_known else False if timed_out else None,
        provenance="explicit" if is_known else "inferred" if timed_out else "unknown",
        at=from_seconds(extra.get("timestamp")),
        error=exception or None,
        exit_code=code,
    )


def _exit_code(extra: dict[str, Any], text: str) -> int | None:
    code = as_exit_code(extra.get("returncode"))
    if code is not None:
        return code
    if text.startswith("<exception>"):
        text = text.partition("</exception>")[2]
    match = _RETURN_CODE.match(text)
    return int(match[1]) if match else None


_WHITESPACE = re.compile(r"\s*")
_CLOSING_FENCE = "\n```"


def find_command(text: str, tag: str) -> str | None:
    """Return the content of the only block fenced as `tag`; None if there is not exactly one.

    Finds what the agent's own regex finds, but in linear time: the fence and the tag, white space
    that ends a line, and everything up to the next line that begins with a fence. If there are
    two blocks, the agent runs none.
    """
    blocks = list(islice(_fenced_blocks(text, f"```{tag}"), 2))
    return blocks[0] if len(blocks) == 1 else None


def _fenced_blocks(text: str, opening: str) -> Iterator[str]:
    start = text.find(opening)
    while start >= 0:
        after = start + len(opening)
        space = _WHITESPACE.match(text, after)
        newline = text.rfind("\n", after, space.end() if space else after)
        if newline < 0:
            start = text.find(opening, after)
            continue
        end = text.find(_CLOSING_FENCE, newline + 1)
        if end < 0:
            # The last of several line ends may belong to the closing fence.
            if text.startswith(_CLOSING_FENCE, newline) and text.find("\n", after, newline) >= 0:
                yield ""
            return
        yield text[newline + 1 : end].strip()
        start = text.find(opening, end + len(_CLOSING_FENCE))
