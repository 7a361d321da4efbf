"""Batches over HTTP, which versions of the protocol up to 2025-03-26 have.

A batch is taken apart: each message is a request of its own to the proxy, as if the client had sent
it so. What comes of them is one stream of events.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from policyguard.adapters.mcp.http.event_stream import encode_event
from policyguard.adapters.mcp.http.reply import Headers, Reply
from policyguard.adapters.mcp.messages import (
    PROTOCOL_VERSION,
    SERVER_GONE,
    MalformedError,
    Message,
    decode,
    encode,
    error_response,
    is_request,
    meta,
    params,
)
from policyguard.adapters.request_body import Receive

_LAST_VERSION = "2025-03-26"
"""The last version of the protocol with batches, and the one of requests that name none."""

_OF_ALL = (401, 403, 404)
"""Statuses that are of the client or its session, not of one message."""

App = Callable[..., Awaitable[None]]


def find_problem(messages: list[Message], version: str, max_messages: int) -> str:
    """Return why a batch is not passed on; empty if it is."""
    named = (meta(params(message)).get(PROTOCOL_VERSION) for message in messages)
    latest = max(version, *map(str, filter(None, named)), "")
    if latest > _LAST_VERSION:
        return f"version {latest[:20]} of the protocol has no batches: send each message by itself"
    if len(messages) > max_messages:
        return f"a batch has at most {max_messages} messages"
    if any(message.get("method") == "initialize" for message in messages):
        return "`initialize` cannot be part of a batch: send it by itself"
    return ""


class Batch:
    """The messages of one request, and what comes of them."""

    def __init__(self, app: App, scope: Mapping[str, Any], reply: Reply) -> None:
        self._app, self._scope, self._reply = app, scope, reply
        self._gone = asyncio.Event()
        self._has_failed = False

    async def serve(self, messages: list[Message], leaving: asyncio.Future[None]) -> None:
        """Answer all messages; `leaving` ends when the client leaves."""
        parts = [self._app(self._scope, *self._part(message)) for message in messages]
        work = asyncio.gather(*parts)
        both: set[asyncio.Future[Any]] = {work, leaving}
        await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
        self._gone.set()
        await work
        if not self._has_failed:
            await self._reply.end()

    def _part(self, message: Message) -> tuple[Receive, Callable[[Any], Awaitable[None]]]:
        """Return how the proxy receives one of the messages, and sends what comes of it."""
        requests = [{"type": "http.request", "body": encode(message)}]
        start: dict[str, Any] = {}
        body = bytearray()

        async def receive() -> dict[str, Any]:
            if requests:
                return requests.pop()
            await self._gone.wait()
            return {"type": "http.disconnect"}

        async def send(sent: Any) -> None:
            if sent["type"] == "http.response.start":
                start.update(sent)
            elif _is_stream(start["headers"]):
                if sent["body"] and not self._has_failed:
                    await self._reply.send_event(sent["body"])
            else:
                body.extend(sent["body"])  # all of it: the proxy sends no other body in parts
                await self._finish(message, start["status"], start["headers"], bytes(body))

        return receive, send

    async def _finish(self, message: Message, status: int, headers: Headers, body: bytes) -> None:
        if self._has_failed:
            return
        if status in _OF_ALL and not self._reply.is_started:
            self._has_failed = True
            self._gone.set()
            await self._reply.send_body(status, headers, body)
            return
        try:
            answers = [one for one in decode(body) if "jsonrpc" in one] if body else []
        except MalformedError:
            answers = []
        if not answers and is_request(message) and status >= 400:
            text = f"the server answered with status {status}"
            answers = [error_response(message["id"], SERVER_GONE, text)]
        for answer in answers:
            await self._reply.send_event(encode_event(encode(answer)))


def _is_stream(headers: Headers) -> bool:
    return any(
        name == b"content-type" and value.startswith(b"text/event-stream")
        for name, value in headers
    )
