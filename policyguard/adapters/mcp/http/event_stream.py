"""Events of a server-sent event stream, as they arrive and as they are sent."""

from __future__ import annotations

import re
from codecs import BOM_UTF8
from collections.abc import AsyncIterable, AsyncIterator
from typing import NamedTuple

_END = re.compile(rb"(?>\r\n|\n|\r)(?>\r\n|\n|\r)")
_FIELD = re.compile(rb"(?:data|event|id|retry)?:|(?:data|event|id|retry|)\Z")
_LINE_END = re.compile(rb"\r\n|\n|\r")


class TooLongError(Exception):
    """An event is longer than is passed on."""


class Event(NamedTuple):
    """One event: `raw` is all of it with the blank line that ends it, `data` its data lines."""

    raw: bytes
    data: bytes

    @property
    def has_id(self) -> bool:
        """Whether the client can resume the stream after this event."""
        return any(line.startswith(b"id:") for line in _LINE_END.split(self.raw))

    def with_data(self, data: bytes) -> bytes:
        """Return the event with other data, which is of one line."""
        lines = [line for line in _LINE_END.split(self.raw) if line]
        others = [line for line in lines if not line.startswith((b"data:", b"data"))]
        return b"\r\n".join([*others, b"data: " + data]) + b"\r\n\r\n"


def encode_event(data: bytes) -> bytes:
    """Return an event that carries a message."""
    return b"event: message\r\ndata: " + data + b"\r\n\r\n"


async def read_events(chunks: AsyncIterable[bytes], max_bytes: int) -> AsyncIterator[Event]:
    """Return the events of a stream. Raises `TooLongError` for one beyond `max_bytes`."""
    kept = bytearray()
    searched = 0
    is_first = True
    async for chunk in chunks:
        kept += chunk
        if is_first and len(kept) >= len(BOM_UTF8):  # clients read the stream without it
            is_first = False
            if kept.startswith(BOM_UTF8):
                del kept[: len(BOM_UTF8)]
        while found := _END.search(kept, max(0, searched - 3)):
            if found.end() == len(kept) and kept.endswith(b"\n\r"):
                break  # the line feed that belongs to it may be on its way
            raw = bytes(kept[: found.end()])
            del kept[: found.end()]
            searched = 0
            if len(raw) > max_bytes:
                raise TooLongError
            yield _parse(raw)
        searched = len(kept)
        if searched > max_bytes:
            raise TooLongError


def _parse(raw: bytes) -> Event:
    lines = _LINE_END.split(raw)
    known = [line for line in lines if _FIELD.match(line)]
    if len(known) < len(lines):  # a client may know fields that are none, such as one after a mark
        raw = b"\r\n".join(known)
    data = (line[5:] for line in known if line.startswith(b"data:"))
    return Event(raw, b"\n".join(line.removeprefix(b" ") for line in data))
