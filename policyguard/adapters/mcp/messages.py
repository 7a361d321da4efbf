"""JSON-RPC messages as they are on the wire.

A message that is not changed is passed on as the bytes that arrived. What is changed or made here
is written by `encode`. The SDK's own types would drop members that they do not know and turn
numbers that no float holds into null.
"""

from __future__ import annotations

import json
from typing import Any

import msgspec

from policyguard.adapters import json_text

Message = dict[str, Any]
"""A JSON-RPC request, notification or response."""

MessageId = str | int | float

PARSE_ERROR = -32700
INVALID_REQUEST = -32600
INTERNAL_ERROR = -32603
SERVER_GONE = -32000
"""Codes of JSON-RPC errors; the last one is of those that are for implementations to define."""

MODERN = "2026-07-28"
"""The first version of the protocol without sessions: each request says who sends it."""

PREFIX = "io.modelcontextprotocol/"
PROTOCOL_VERSION, CLIENT_INFO, CLIENT_CAPABILITIES, SUBSCRIPTION_ID = (
    f"{PREFIX}{name}"
    for name in ("protocolVersion", "clientInfo", "clientCapabilities", "subscriptionId")
)
"""Keys of `_meta`."""


class MalformedError(ValueError):
    """Not a JSON-RPC message."""


def decode(data: bytes | bytearray | memoryview) -> list[Message]:
    """Return the messages in a text: one, or those of a batch. Raises `MalformedError`."""
    try:
        value = json_text.decode(data)
    except msgspec.DecodeError as error:
        raise MalformedError(str(error)) from None
    messages = value if isinstance(value, list) else [value]
    if not messages or not all(isinstance(message, dict) for message in messages):
        raise MalformedError("not a JSON-RPC message")
    return messages


def encode(message: Message | list[Message]) -> bytes:
    """Return a message as JSON, on one line."""
    return json_text.encode(message)


def as_judged(data: bytes, message: Message) -> bytes:
    """Return a client's message as bytes: those that arrived, or new ones if a call repeats a key.

    Of such a key the policy has read the last, and a server may read the first. So what repeats
    its method may be a call, too.
    """
    if "method" not in message:
        return data
    is_call = message["method"] == "tools/call"
    try:
        json.loads(data, object_pairs_hook=_require_once if is_call else _require_one_method)
    except (ValueError, RecursionError):
        return encode(message)
    return data


def _require_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a key is there twice")
    return found


def _require_one_method(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    return _require_once([pair for pair in pairs if pair[0] == "method"])


def is_request(message: Message) -> bool:
    """Whether a message waits for a response."""
    return "method" in message and "id" in message


def is_response(message: Message) -> bool:
    """Whether a message is the answer to a request."""
    return "method" not in message and "id" in message


def params(message: Message) -> dict[str, Any]:
    """Return the parameters of a request or notification; empty if it has none."""
    found = message.get("params")
    return found if isinstance(found, dict) else {}


def meta(holder: dict[str, Any]) -> dict[str, Any]:
    """Return the `_meta` of parameters or of a result; empty if it has none."""
    found = holder.get("_meta")
    return found if isinstance(found, dict) else {}


def key_of(id_: object) -> tuple[str, object]:
    """Return the key of a request's id: 1 and `"1"` are two, 1 and 1.0 are one."""
    if isinstance(id_, str):
        return "text", id_
    if isinstance(id_, (int, float)) and not isinstance(id_, bool):
        return "number", id_
    return "odd", encode({"id": id_})


def error_response(id_: object, code: int, text: str) -> Message:
    """Return a JSON-RPC error."""
    return {"jsonrpc": "2.0", "id": id_, "error": {"code": code, "message": text}}


def result_response(id_: object, result: dict[str, Any]) -> Message:
    """Return the response to a request."""
    return {"jsonrpc": "2.0", "id": id_, "result": result}


def notification(method: str, values: dict[str, Any] | None = None) -> Message:
    """Return a notification."""
    message: Message = {"jsonrpc": "2.0", "method": method}
    return message if values is None else {**message, "params": values}


def task_id(result: dict[str, Any]) -> str:
    """Return the id of the task that runs a call: of 2025-11-25, or of the tasks extension."""
    task = result.get("task")
    if isinstance(task, dict) and isinstance(task.get("taskId"), str):
        return str(task["taskId"])
    if result.get("resultType") == "task" and isinstance(result.get("taskId"), str):
        return str(result["taskId"])
    return ""


def without_contradiction(message: Message) -> Message:
    """Return a response that is a result and an error as the result: a client may show it."""
    if "result" in message and "error" in message:
        return {key: value for key, value in message.items() if key != "error"}
    return message
