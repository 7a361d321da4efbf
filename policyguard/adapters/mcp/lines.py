"""Messages on pipes: one on each line, of a bounded length."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from typing import Any, NamedTuple, Self

import msgspec

_CHUNK = 262144
_EDGE = 512
"""Bytes of the beginning and the end of a line in which its id is looked for."""

_TEXT = rb'"(?:[^"\\]|\\.){0,200}"'
_ID = rb"(" + _TEXT + rb"|-?[0-9]{1,20})"
_ID_FIRST = re.compile(
    rb'\s*\{\s*(?:"(?:jsonrpc|method)"\s*:\s*' + _TEXT + rb'\s*,\s*)*"id"\s*:\s*' + _ID + rb"\s*,"
)
_ID_LAST = re.compile(
    rb',\s*"id"\s*:\s*' + _ID + rb'\s*(?:,\s*"jsonrpc"\s*:\s*' + _TEXT + rb"\s*)?\}\s*\Z"
)


class UnreadLine(NamedTuple):
    """A line that is not read as a message: its beginning, its end, and how many bytes it has."""

    head: bytes
    tail: bytes
    size: int

    @classmethod
    def of(cls, line: bytes) -> Self:
        """Return what is to be known of a line that cannot be read."""
        return cls(line[:_EDGE], line[-_EDGE:], len(line))

    def find_id(self) -> Any:
        """Return the id of the message, where its writer has put it first or last; else None."""
        found = _ID_FIRST.match(self.head) or _ID_LAST.search(self.tail)
        if found is None:
            return None
        try:
            return msgspec.json.decode(found[1])
        except msgspec.DecodeError:
            return None


async def read_lines(
    reader: asyncio.StreamReader, max_bytes: int
) -> AsyncIterator[bytes | UnreadLine]:
    """Return the lines of a pipe until its end; what is longer than `max_bytes` is not kept."""
    kept, size, head = bytearray(), 0, b""
    while chunk := await reader.read(_CHUNK):
        *ends, rest = chunk.split(b"\n")
        for end in ends:
            kept += end
            size += len(end)
            if size > max_bytes:
                yield UnreadLine(head or bytes(kept[:_EDGE]), bytes(kept[-_EDGE:]), size)
            elif kept:
                yield bytes(kept)
            kept, size, head = bytearray(), 0, b""
        kept += rest
        size += len(rest)
        if size > max_bytes:
            head = head or bytes(kept[:_EDGE])
            del kept[:-_EDGE]
    if kept and size <= max_bytes:
        yield bytes(kept)


async def open_input(pipe: Any) -> asyncio.StreamReader:
    """Return a reader of a pipe of this process. Raises `OSError` if it is a file."""
    reader = asyncio.StreamReader(limit=_CHUNK)
    loop = asyncio.get_running_loop()
    try:
        await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), pipe)
    except ValueError:
        raise OSError("standard input is a file; the proxy needs a pipe from a client") from None
    return reader


async def open_output(pipe: Any) -> asyncio.StreamWriter:
    """Return a writer to a pipe of this process. Raises `OSError` if it is a file."""
    loop = asyncio.get_running_loop()
    try:
        transport, protocol = await loop.connect_write_pipe(asyncio.streams.FlowControlMixin, pipe)
    except ValueError:
        raise OSError("standard output is a file; the proxy needs a pipe to a client") from None
    return asyncio.StreamWriter(transport, protocol, None, loop)
