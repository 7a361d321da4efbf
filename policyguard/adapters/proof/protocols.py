"""The protocols of models: each reads how far a conversation is, and says the script's next step.

They are stateless: the number of the next step is that of the model's messages with calls in the
request, so retries and side requests do no harm. A request without tools gets a short text.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from policyguard.adapters.proof.script import Conversation, Script, Step

_FILLER = "ok"

Document = dict[str, Any]


class Reply(NamedTuple):
    """A JSON document, or the events of a stream, each with its name ("" for none)."""

    document: Document
    events: Sequence[tuple[str, Document]] | None = None


Protocol = Callable[[Script, Document, bool], Reply]
"""Answers a request's body; the last argument is whether its path asks for a stream."""


def _next_step(
    script: Script, body: Document, messages: Sequence[Any], has_calls: Callable[[Any], bool]
) -> Step:
    """Return what the model says after these messages."""
    if not body.get("tools"):
        return _FILLER
    called = [has_calls(message) for message in messages]
    before = messages[: called.index(True)] if any(called) else messages
    last = json.dumps(messages[-1]) if messages else ""
    return script(Conversation(json.dumps([*before]), sum(called), last))


def _new_id(prefix: str) -> str:
    return f"{prefix}_{uuid.uuid4().hex[:20]}"


def answer_messages(script: Script, body: Document, _: bool) -> Reply:
    """Answer in Anthropic's Messages protocol."""

    def has_calls(message: Document) -> bool:
        content = message["content"]
        return (
            message["role"] == "assistant"
            and isinstance(content, list)
            and any(block.get("type") == "tool_use" for block in content)
        )

    step = _next_step(script, body, body.get("messages", []), has_calls)
    content = _content_blocks(step)
    reason = "end_turn" if isinstance(step, str) else "tool_use"
    message = {
        "id": _new_id("msg"),
        "type": "message",
        "role": "assistant",
        "model": body.get("model", "stub"),
        "stop_reason": None,
        "stop_sequence": None,
        "usage": {"input_tokens": 1, "output_tokens": 1},
    }
    whole = {**message, "content": content, "stop_reason": reason}
    if not body.get("stream"):
        return Reply(whole)
    events: list[Document] = [{"type": "message_start", "message": {**message, "content": []}}]
    for index, block in enumerate(content):
        events += _block_events(index, block)
    delta = {"stop_reason": reason, "stop_sequence": None}
    events.append({"type": "message_delta", "delta": delta, "usage": {"output_tokens": 1}})
    events.append({"type": "message_stop"})
    return Reply(whole, [(event["type"], event) for event in events])


def _content_blocks(step: Step) -> list[Document]:
    if isinstance(step, str):
        return [{"type": "text", "text": step}]
    return [
        {"type": "tool_use", "id": _new_id("toolu"), "name": call.tool, "input": call.args}
        for call in step
    ]


def _block_events(index: int, block: Document) -> list[Document]:
    if block["type"] == "text":
        start, delta = {**block, "text": ""}, {"type": "text_delta", "text": block["text"]}
    else:
        text = json.dumps(block["input"])
        start, delta = {**block, "input": {}}, {"type": "input_json_delta", "partial_json": text}
    return [
        {"type": "content_block_start", "index": index, "content_block": start},
        {"type": "content_block_delta", "index": index, "delta": delta},
        {"type": "content_block_stop", "index": index},
    ]


def answer_chat_completions(script: Script, body: Document, _: bool) -> Reply:
    """Answer in OpenAI's chat completions protocol."""
    step = _next_step(
        script,
        body,
        body.get("messages", []),
        lambda message: message["role"] == "assistant" and bool(message.get("tool_calls")),
    )
    message: Document = {"role": "assistant"}
    if isinstance(step, str):
        message["content"], reason = step, "stop"
    else:
        reason = "tool_calls"
        message["tool_calls"] = [
            {
                "index": index,
                "id": _new_id("call"),
                "type": "function",
                "function": {"name": call.tool, "arguments": json.dumps(call.args)},
            }
            for index, call in enumerate(step)
        ]
    base = {"id": _new_id("chat"), "created": 1, "model": body.get("model", "stub")}
    usage = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
    choice = {"index": 0, "message": message, "finish_reason": reason}
    whole = {**base, "object": "chat.completion", "choices": [choice], "usage": usage}
    if not body.get("stream"):
        return Reply(whole)
    chunk = {**base, "object": "chat.completion.chunk"}
    said = {"index": 0, "delta": message, "finish_reason": None}
    ended = {"index": 0, "delta": {}, "finish_reason": reason}
    return Reply(
        whole,
        [("", {**chunk, "choices": [said]}), ("", {**chunk, "choices": [ended], "usage": usage})],
    )


def answer_responses(script: Script, body: Document, _: bool) -> Reply:
    """Answer in OpenAI's Responses protocol."""
    given = body.get("input")
    items = given if isinstance(given, list) else []
    calls = [str(item.get("type")).endswith("_call") for item in items]
    begins = [call and not (index and calls[index - 1]) for index, call in enumerate(calls)]
    messages = [{**item, "begins": begin} for item, begin in zip(items, begins, strict=True)]
    step = _next_step(script, body, messages, lambda message: bool(message["begins"]))
    output = _response_items(step)
    response = {
        "id": _new_id("resp"),
        "object": "response",
        "created_at": 1,
        "status": "completed",
        "model": body.get("model", "stub"),
        "output": output,
        "usage": {
            "input_tokens": 1,
            "output_tokens": 1,
            "total_tokens": 2,
            "input_tokens_details": {"cached_tokens": 0},
            "output_tokens_details": {"reasoning_tokens": 0},
        },
    }
    if not body.get("stream"):
        return Reply(response)
    started = {**response, "status": "in_progress", "output": []}
    events: list[Document] = [{"type": "response.created", "response": started}]
    for index, item in enumerate(output):
        place = {"output_index": index, "item": item}
        events.append({"type": "response.output_item.added", **place})
        events.append({"type": "response.output_item.done", **place})
    events.append({"type": "response.completed", "response": response})
    numbered = [{**event, "sequence_number": number} for number, event in enumerate(events)]
    return Reply(response, [(event["type"], event) for event in numbered])


def _response_items(step: Step) -> list[Document]:
    if isinstance(step, str):
        content = [{"type": "output_text", "text": step, "annotations": []}]
        message = {"type": "message", "id": _new_id("msg"), "role": "assistant"}
        return [{**message, "status": "completed", "content": content}]
    return [
        {
            "type": "function_call",
            "id": _new_id("fc"),
            "call_id": _new_id("call"),
            "name": call.tool,
            **({"namespace": call.namespace} if call.namespace else {}),
            "arguments": json.dumps(call.args),
            "status": "completed",
        }
        for call in step
    ]


def answer_generate_content(script: Script, body: Document, streamed: bool) -> Reply:
    """Answer in Google's generateContent protocol."""
    step = _next_step(
        script,
        body,
        body.get("contents", []),
        lambda content: (
            content.get("role") == "model"
            and any("functionCall" in part for part in content.get("parts", []))
        ),
    )
    if isinstance(step, str):
        parts: list[Document] = [{"text": step}]
    else:
        parts = [{"functionCall": {"name": call.tool, "args": call.args}} for call in step]
    content = {"role": "model", "parts": parts}
    usage = {"promptTokenCount": 1, "candidatesTokenCount": 1, "totalTokenCount": 2}
    whole = {
        "candidates": [{"content": content, "finishReason": "STOP", "index": 0}],
        "usageMetadata": usage,
        "modelVersion": "stub",
    }
    return Reply(whole, [("", whole)] if streamed else None)


def _answer_count(script: Script, body: Document, _: bool) -> Reply:
    return Reply({"input_tokens": 1, "totalTokens": 1})


PROTOCOLS: dict[str, Protocol] = {
    "/count_tokens": _answer_count,
    ":countTokens": _answer_count,
    "/messages": answer_messages,
    "/chat/completions": answer_chat_completions,
    "/responses": answer_responses,
    ":generateContent": answer_generate_content,
    ":streamGenerateContent": answer_generate_content,
}
"""The protocols by how a request's path ends."""
