"""Chat-completions message lists, as OpenAI's API and those like it keep them, and tau-bench's."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from policyguard.model.event import Started
from policyguard.traces import conversations, tool_blocks, usage
from policyguard.traces.arguments import as_arguments
from policyguard.traces.content import as_text
from policyguard.traces.conversations import ROLES, Conversation
from policyguard.traces.importer import Met
from policyguard.traces.item import Item, Skipped
from policyguard.traces.session import Call, Result, SessionEvents
from policyguard.traces.shape import as_id, as_objects, as_string
from policyguard.traces.source import Sample, Source

FORMAT = "chat-completions"

_TAU_BENCH_FAILS = ("Error", "Unknown action ")
"""How a result of tau-bench begins that is a failure: its tools', and that of a tool it has not."""


def detect(sample: Sample) -> bool:
    """Messages with the roles of the API, one conversation a document, a row or a line."""
    return conversations.are_in(sample)


def read(source: Source, met: Met) -> Iterator[Item]:
    """Each conversation as a session."""
    for conversation in conversations.conversations(source):
        if isinstance(conversation, Skipped):
            yield conversation
        elif conversation.is_tau_bench and _acts_in_text(conversation):
            reason = "its calls are text, as `react` and `act` write them, which is not read"
            whole = f"session `{conversation.session}`: {reason}"
            yield Skipped(source.file, conversation.line, whole)
        else:
            yield from _session(source, conversation)


def _acts_in_text(conversation: Conversation) -> bool:
    """Whether calls and results are the text of messages: tau-bench's `react` and `act`."""
    said = as_objects(conversation.messages)
    answers = (message.get("content") for message in said if message.get("role") == "user")
    return any(as_string(answer).startswith("API output: ") for answer in answers)


def _session(source: Source, conversation: Conversation) -> Iterator[Item]:
    events = SessionEvents(source.file, Started(session=conversation.session))
    yield from events.start()
    last = len(conversation.messages) - 1
    for index, message in enumerate(conversation.messages):
        if not isinstance(message, dict) or message.get("role") not in ROLES:
            reason = f"session `{conversation.session}`, message {index}: no known role"
            yield Skipped(source.file, conversation.line, reason)
            continue
        if message["role"] == "assistant":
            used, paid = (conversation.usage, conversation.cost) if index == last else (None, None)
            yield from events.reply(usage.tokens(used), usage.cost(paid))
            yield from events.calls(_calls(message))
            continue
        results = _results(message, conversation.is_tau_bench)
        for result in results:
            yield from events.result(result, conversation.line)
        if message["role"] == "user" and not results:
            events.prompt()
    yield from events.close(conversation.success)


def _calls(message: dict[str, Any]) -> list[Call]:
    """All that a message calls: `tool_calls`, their older form, and blocks of its content."""
    asked = as_objects(message.get("tool_calls")) or as_objects([message.get("function_call")])
    calls = [_call(call) for call in asked]
    return calls or tool_blocks.calls(as_objects(message.get("content")))


def _call(call: dict[str, Any]) -> Call:
    function = call.get("function", call.get("custom"))
    told = function if isinstance(function, dict) else call
    args = (told[key] for key in ("arguments", "args", "input") if key in told)
    return Call(
        id=as_id(call.get("id")),
        tool=as_string(function) or as_string(told.get("name")),
        args=as_arguments(next(args, None)),
    )


def _results(message: dict[str, Any], is_tau_bench: bool) -> list[Result]:
    blocks = tool_blocks.results(as_objects(message.get("content")))
    if blocks or message["role"] not in ("tool", "function"):
        return blocks
    call, text = as_id(message.get("tool_call_id")), as_text(message.get("content"))
    if is_tau_bench:
        return [Result(call, text, ok=not text.startswith(_TAU_BENCH_FAILS), known="inferred")]
    if "error" in message:
        error = message["error"]
        said = as_text(error) if error and error is not True else ""
        return [Result(call, text, ok=not error, known="explicit", error=said or None)]
    return [Result(call, text)]
