"""mini-swe-agent `.traj.json` files, versions 1 and 2: one JSON document, one session, one turn.

Version 1 writes the command into the text of its message; version 2 makes tool calls, and lists
what it ran in `extra.actions`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

from policyguard.model.event import Started
from policyguard.traces import usage
from policyguard.traces.content import as_text
from policyguard.traces.fenced import the_command
from policyguard.traces.importer import Met
from policyguard.traces.item import Item, Skipped
from policyguard.traces.session import Call, Result, SessionEvents
from policyguard.traces.shape import as_id, as_list, as_object, as_objects, as_string
from policyguard.traces.source import Sample, Source
from policyguard.traces.times import from_seconds

FORMAT = "mini-swe-agent"

_VERSION_1 = "mini-swe-agent-1"

_FENCED = re.compile(r"```(\w+)\\s\*\\n\(\.\*\?\)\\n```")
"""The expressions for finding the command that are a fence with a tag: all that are shipped."""

_RETURN_CODE = re.compile(r"\s*<returncode>(-?\d{1,10})</returncode>")
_TIMED_OUT = "The last command <command>"

_Commands = Callable[[dict[str, Any]], list[Call]]


def detect(sample: Sample) -> bool:
    """A document that says so in `trajectory_format`, or is older than that."""
    document = as_object(sample.document)
    return _version(document).startswith(FORMAT) and isinstance(document.get("messages"), list)


def _version(document: dict[str, Any]) -> str:
    """The first versions of mini-swe-agent do not say that they are."""
    if "trajectory_format" not in document and "model_stats" in as_object(document.get("info")):
        return _VERSION_1
    return as_string(document.get("trajectory_format"))


def read(source: Source, met: Met) -> Iterator[Item]:
    """The run's one session. What stands in it as `user` are observations."""
    document = as_object(source.sample.document)
    info = as_object(document.get("info"))
    config = as_object(info.get("config"))
    commands = _commands(_version(document), config)
    if commands is None:
        reason = "the run finds its commands by an expression of its own, which is not tried here"
        yield Skipped(source.file, None, reason)
        return
    started = Started(
        session=as_id(document.get("instance_id")) or source.name,
        agent=FORMAT,
        cwd=as_string(as_object(config.get("environment")).get("cwd")),
    )
    events = SessionEvents(source.file, started)
    yield from events.start()
    events.prompt()
    messages = as_list(document.get("messages"))
    for index, message in enumerate(messages):
        if not isinstance(message, dict):
            yield Skipped(source.file, None, f"message {index}: no object")
        elif message.get("role") == "assistant" or message.get("object") == "response":
            yield from _reply(events, message, commands)
        # The last message of a run that has ended is what was submitted, or why it broke.
        elif not (info.get("exit_status") and message is messages[-1]):
            yield from _observation(events, message)
    yield from events.close()


def _commands(version: str, config: dict[str, Any]) -> _Commands | None:
    """How the commands of a message are found; None where that cannot be done."""
    if version != _VERSION_1:
        return _listed
    expression = as_object(config.get("agent")).get("action_regex")
    fenced = _FENCED.fullmatch(as_string(expression))
    if expression is not None and fenced is None:
        return None
    tag = fenced[1] if fenced else "bash"

    def written(message: dict[str, Any]) -> list[Call]:
        command = the_command(as_text(message.get("content")), tag)
        return [] if command is None else [Call("", "bash", {"command": command})]

    return written


def _listed(message: dict[str, Any]) -> list[Call]:
    extra = as_object(message.get("extra"))
    at = from_seconds(extra.get("timestamp"))
    return [
        Call(as_id(action.get("tool_call_id")), "bash", {"command": action.get("command")}, at)
        for action in as_objects(extra.get("actions"))
    ]


def _reply(events: SessionEvents, message: dict[str, Any], commands: _Commands) -> Iterator[Item]:
    extra = as_object(message.get("extra"))
    used = as_object(as_object(extra.get("response")).get("usage"))
    paid = extra.get("cost")
    yield from events.reply(
        usage.tokens(used),
        usage.cost(used.get("cost") if paid is None else paid),
        from_seconds(extra.get("timestamp")),
    )
    yield from events.calls(commands(message))


def _observation(events: SessionEvents, message: dict[str, Any]) -> Iterator[Item]:
    result = _result(message)
    # The task, and complaints about the form of a message, answer no call and have no code.
    if events.waits or result.exit_code is not None:
        yield from events.result(result)


def _result(message: dict[str, Any]) -> Result:
    extra = as_object(message.get("extra"))
    text = as_text(message.get("content", message.get("output")))
    broken = as_string(extra.get("exception_info"))
    code = _exit_code(extra, text)
    timed_out = text.startswith(_TIMED_OUT)
    told = code is not None or bool(broken)
    return Result(
        call=as_id(message.get("tool_call_id")) or as_id(message.get("call_id")),
        text=text,
        ok=code == 0 and not broken if told else False if timed_out else None,
        known="explicit" if told else "inferred" if timed_out else "unknown",
        at=from_seconds(extra.get("timestamp")),
        error=broken or None,
        exit_code=code,
    )


def _exit_code(extra: dict[str, Any], text: str) -> int | None:
    code = extra.get("returncode")
    if isinstance(code, int) and not isinstance(code, bool) and abs(code) < 2**53:
        return code
    if text.startswith("<exception>"):
        text = text.partition("</exception>")[2]
    found = _RETURN_CODE.match(text)
    return int(found[1]) if found else None
