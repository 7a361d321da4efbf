"""Message lists of OpenAI's chat-completions API and compatible ones, and tau-bench's."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from policyguard.model.event import Started
from policyguard.traces.containers.source import Sample, Source
from policyguard.traces.formats.chat_completions import conversations
from policyguard.traces.formats.chat_completions.conversations import ROLES, Conversation
from policyguard.traces.importer import SeenIds
from policyguard.traces.item import Item, Skipped
from policyguard.traces.parsing import tool_blocks, usage
from policyguard.traces.parsing.json_shape import as_id, as_objects, as_string
from policyguard.traces.parsing.message_content import as_text
from policyguard.traces.session_builder import ImportedCall, ImportedResult, SessionBuilder

FORMAT = "chat-completions"

_TAU_BENCH_ERROR_PREFIXES = ("Error", "Unknown action ")
"""How a failed result of tau-bench begins: an error of a tool, or an unknown tool."""


def detect(sample: Sample) -> bool:
    """Return whether a document, a row or a line has messages with the API's roles."""
    return conversations.has_conversations(sample)


def read(source: Source, seen_ids: SeenIds) -> Iterator[Item]:
    """Yield one session per conversation."""
    for conversation in conversations.iter_conversations(source):
        if isinstance(conversation, Skipped):
            yield conversation
        elif conversation.is_tau_bench and _has_text_calls(conversation):
            reason = "calls written as text (`react`, `act`) are not supported"
            session = f"session `{conversation.session}`"
            yield Skipped(source.file, conversation.line, f"{session}: {reason}")
        else:
            yield from _read_session(source, conversation)


def _has_text_calls(conversation: Conversation) -> bool:
    """Return whether calls and results are message text: tau-bench's `react` and `act`."""
    messages = as_objects(conversation.messages)
    texts = (message.get("content") for message in messages if message.get("role") == "user")
    return any(as_string(text).startswith("API output: ") for text in texts)


def _read_session(source: Source, conversation: Conversation) -> Iterator[Item]:
    builder = SessionBuilder(source.file, Started(session=conversation.session))
    yield from builder.start()
    last = len(conversation.messages) - 1
    for index, message in enumerate(conversation.messages):
        if not isinstance(message, dict) or message.get("role") not in ROLES:
            reason = f"session `{conversation.session}`, message {index}: unknown role"
            yield Skipped(source.file, conversation.line, reason)
            continue
        if message["role"] == "assistant":
            used, paid = (conversation.usage, conversation.cost) if index == last else (None, None)
            yield from builder.add_reply(usage.count_tokens(used), usage.read_cost(paid))
            yield from builder.add_calls(_parse_calls(message))
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
