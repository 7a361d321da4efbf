"""The answer to one HTTP request of a client: one message as JSON, or a stream of events."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from policyguard.adapters.mcp.http.event_stream import encode_event
from policyguard.adapters.mcp.messages import INVALID_REQUEST, Message, encode, error_response

Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
Headers = list[tuple[bytes, bytes]]

JSON_HEADERS: Headers = [(b"content-type", b"application/json")]
_STREAM: Headers = [
    (b"content-type", b"text/event-stream"),
    (b"cache-control", b"no-cache, no-transform"),
    (b"x-accel-buffering", b"no"),
]


class Reply:
    """What is sent to a client. It becomes a stream with its first event."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self._order = asyncio.Lock()
        self._pushes: set[asyncio.Task[None]] = set()
        self.is_started = False
        self.is_stream = False

    async def start_stream(self, headers: Headers = _STREAM, status: int = 200) -> None:
        """Start a stream, once."""
        if not self.is_started:
            self.is_started = self.is_stream = True
            await self._send({"type": "http.response.start", "status": status, "headers": headers})

    async def send_event(self, raw: bytes) -> None:
        """Send an event; this waits for a client that is slow."""
        async with self._order:
            await self.start_stream()
            await self._send({"type": "http.response.body", "body": raw, "more_body": True})

    def push(self, message: Message) -> None:
        """Send a message as an event, later."""
        task = asyncio.create_task(self.send_event(encode_event(encode(message))))
        self._pushes.add(task)
        task.add_done_callback(self._forget)

    def _forget(self, task: asyncio.Task[None]) -> None:
        self._pushes.discard(task)
        if not task.cancelled():
            task.exception()  # the client has gone, which its request notices

    async def send_message(self, message: Message, status: int = 200) -> None:
        """Send the last message: as an event if this is a stream by now, else as JSON."""
        if self._pushes:
            await asyncio.gather(*self._pushes, return_exceptions=True)
        if self.is_stream:
            await self.send_event(encode_event(encode(message)))
            await self.end()
        else:
            await self.send_body(status, JSON_HEADERS, encode(message))

    async def send_body(self, status: int, headers: Headers, body: bytes) -> None:
        """Send all of a response that is no stream."""
        self.is_started = True
        length = b"content-length", str(len(body)).encode()
        kept = [(name, value) for name, value in headers if name != b"content-length"]
        start = {"type": "http.response.start", "status": status, "headers": [*kept, length]}
        await self._send(start)
        await self._send({"type": "http.response.body", "body": body})

    async def refuse(self, status: int, text: str) -> None:
        """Say why a request is not passed on, if nothing was sent yet."""
        if not self.is_started:
            await self.send_message(error_response(None, INVALID_REQUEST, text), status)

    async def end(self) -> None:
        """End the response; one that has not begun says that there is nothing to say."""
        if self._pushes:
            await asyncio.gather(*self._pushes, return_exceptions=True)
        if self.is_stream:
            await self._send({"type": "http.response.body", "body": b""})
        elif not self.is_started:
            await self.send_body(202, [], b"")
