"""The bodies of HTTP requests, within a size and a time."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]

_DISCARDED = 4
"""How many times its largest size a body is read all the same: a sender reads no answer before."""

BODY_TIMEOUT = 10.0
"""Seconds in which the first and each next piece of a body must arrive."""


class BodyError(Exception):
    """A request whose body cannot be read; not the sender's JSON, but its size or its pace."""

    def __init__(self, status: int, title: str, detail: str) -> None:
        self.status, self.title, self.detail = status, title, detail
        super().__init__(detail)


_GONE = BodyError(400, "request incomplete", "the client has gone")


async def read_body(receive: Receive, max_bytes: int) -> bytes:
    """Return a request's body, of at most `max_bytes`. Raises `BodyError`."""
    message = await _receive(receive)
    body: bytes = message.get("body", b"")
    size = len(body)
    if message.get("more_body"):
        chunks = [body]
        while message.get("more_body") and size <= _DISCARDED * max_bytes:
            message = await _receive(receive)
            size += len(message.get("body", b""))
            if size <= max_bytes:
                chunks.append(message.get("body", b""))
        body = b"".join(chunks)
    if size > max_bytes:
        raise BodyError(413, "request too large", f"send at most {max_bytes} bytes")
    return body


async def _receive(receive: Receive) -> MutableMapping[str, Any]:
    try:
        async with asyncio.timeout(BODY_TIMEOUT):
            message = await receive()
    except TimeoutError:
        raise BodyError(408, "request too slow", f"send it within {BODY_TIMEOUT:.0f} s") from None
    if message["type"] == "http.disconnect":
        raise _GONE
    return message
