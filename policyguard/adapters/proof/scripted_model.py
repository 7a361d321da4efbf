"""A model on loopback that says what a script says, in the protocols that hosts speak.

It is stateless: the next step is the number of the model's messages with tool calls in the request,
so retries and side requests do no harm. A request without tools gets a short text.
"""

from __future__ import annotations

import json
import threading
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple

_MAX_BODY = 64 * 1024 * 1024
_FILLER = "ok"


class ToolCall(NamedTuple):
    """A call that the model makes."""

    tool: str
    args: dict[str, Any]


Step = Sequence[ToolCall] | str
"""The calls of one message of the model, or its final text."""

Script = Callable[[str, int], Step]
"""Returns the step of a conversation, from its first message's text and the number of steps so
far: a sub-agent's conversation begins with its own prompt."""


def follow(steps: Sequence[Step], final: str = "done") -> Script:
    """Return the script of one conversation."""
    return lambda _, number: steps[number] if number < len(steps) else final


class ScriptedModel:
    """A running model: `port` is where it listens, `requests` what it was asked."""

    def __init__(self, script: Script) -> None:
        self.requests: list[dict[str, Any]] = []
        handler = type("Handler", (_Handler,), {"model": self})
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self.port: int = self._server.server_address[1]
        self.script = script

    @contextmanager
    def running(self) -> Iterator[ScriptedModel]:
        """Serve for the time of a `with` block."""
        thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)
        thread.start()
        try:
            yield self
        finally:
            self._server.shutdown()
            self._server.server_close()
            thread.join()


class _Handler(BaseHTTPRequestHandler):
    """One request; its path names the protocol."""

    protocol_version = "HTTP/1.1"
    model: ScriptedModel

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the base's name
        """Print nothing."""

    def do_HEAD(self) -> None:
        self._send({})

    def do_GET(self) -> None:
        self._send({"data": [{"id": "stub", "object": "model"}], "models": []})

    def do_POST(self) -> None:
        size = min(int(self.headers.get("content-length") or 0), _MAX_BODY)
        try:
            body = json.loads(self.rfile.read(size) or b"{}")
        except ValueError:
            body = {}
        self.model.requests.append(body)
        path = self.path.partition("?")[0]
        if path.endswith("/count_tokens"):
            self._send({"input_tokens": 1})
        elif path.endswith("/messages"):
            self._answer_messages(body)
        else:
            self._send({})

    def _answer_messages(self, body: dict[str, Any]) -> None:
        """Answer in Anthropic's Messages protocol."""
        messages = body.get("messages", [])
        blocks = [
            message["content"]
            for message in messages
            if message["role"] == "assistant" and isinstance(message["content"], list)
        ]
        number = sum(any(block.get("type") == "tool_use" for block in each) for each in blocks)
        first = json.dumps(messages[0]["content"]) if messages else ""
        step = self.model.script(first, number) if body.get("tools") else _FILLER
        content = _content_blocks(step)
        reason = "end_turn" if isinstance(step, str) else "tool_use"
        message = {
            "id": f"msg_{uuid.uuid4().hex[:20]}",
            "type": "message",
            "role": "assistant",
            "model": body.get("model", "stub"),
            "stop_reason": None,
            "stop_sequence": None,
            "usage": {"input_tokens": 1, "output_tokens": 1},
        }
        if not body.get("stream"):
            self._send({**message, "content": content, "stop_reason": reason})
            return
        events: list[dict[str, Any]] = [
            {"type": "message_start", "message": {**message, "content": []}}
        ]
        for index, block in enumerate(content):
            events += _block_events(index, block)
        delta = {"stop_reason": reason, "stop_sequence": None}
        events.append({"type": "message_delta", "delta": delta, "usage": {"output_tokens": 1}})
        events.append({"type": "message_stop"})
        self._stream((event["type"], event) for event in events)

    def _send(self, document: dict[str, Any]) -> None:
        body = json.dumps(document).encode()
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def _stream(self, events: Iterator[tuple[str, dict[str, Any]]]) -> None:
        """Send server-sent events, each with its name unless that is empty."""
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("connection", "close")
        self.end_headers()
        for name, data in events:
            head = f"event: {name}\n" if name else ""
            self.wfile.write(f"{head}data: {json.dumps(data)}\n\n".encode())
        self.close_connection = True


def _content_blocks(step: Step) -> list[dict[str, Any]]:
    if isinstance(step, str):
        return [{"type": "text", "text": step}]
    return [
        {
            "type": "tool_use",
            "id": f"toolu_{uuid.uuid4().hex[:20]}",
            "name": call.tool,
            "input": call.args,
        }
        for call in step
    ]


def _block_events(index: int, block: dict[str, Any]) -> list[dict[str, Any]]:
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
