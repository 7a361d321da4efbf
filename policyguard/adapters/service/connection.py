"""Connections of the service: short requests are answered as they are read.

Making a task and an ASGI cycle for a request takes several times what a check does. So a request
that arrives whole, for an operation on an open session, is answered in the parser's own callback;
uvicorn and the ASGI application serve all others.
"""

from __future__ import annotations

import asyncio
import os
import socket
import struct
import sys
from typing import Any, cast

from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from policyguard.adapters.service.app import ServiceApp

MAX_HEAD = 65536
"""Bytes of a request's head, after what arrived together with its begin."""

HEAD_TIMEOUT = 10.0
"""Seconds in which a connection must send its first head, and each head that has begun."""


class ServiceConnection(HttpToolsProtocol):
    """HTTP between the service and one client."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._held: list[bytes] | None = None
        """The body of a request that is not handed to uvicorn yet."""
        self._in_head, self._head_bytes = False, 0
        self._head_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        """Take a connection, which has to send something soon."""
        super().connection_made(transport)
        self._await_head()

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the connection."""
        self._end_head()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Read what has arrived; a request that is not whole goes the longer way."""
        self._head_bytes += len(data)
        super().data_received(data)
        if self._held is not None:
            self._hand_over()
        if self._in_head:
            if self._head_bytes > MAX_HEAD:
                self.transport.abort()
            elif self._head_timer is None:
                self._await_head()

    def on_message_begin(self) -> None:
        """Begin to count the bytes of a head."""
        self._in_head, self._head_bytes = True, 0
        super().on_message_begin()

    def _await_head(self) -> None:
        self._head_timer = self.loop.call_later(HEAD_TIMEOUT, self.transport.abort)

    def _end_head(self) -> None:
        self._in_head = False
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def on_headers_complete(self) -> None:
        """Hold a request that may be answered at once."""
        self._end_head()
        is_free = (self.cycle is None or self.cycle.response_complete) and not self.pipeline
        if (
            is_free
            and not self.flow.write_paused  # a client that does not read is waited for
            and not self.expect_100_continue
            and self._service.takes(self.url)
            and self.parser.get_method() == b"POST"
            and self.parser.should_keep_alive()
            and not self.parser.should_upgrade()
        ):
            self._held = []
        else:
            super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        """Add to the body."""
        if self._held is None:
            super().on_body(body)
        else:
            self._held.append(body)

    def on_message_complete(self) -> None:
        """Answer a request that was held, if its session is open."""
        if self._held is None:
            super().on_message_complete()
            return
        body = b"".join(self._held)
        answer = self._service.answer_at_once(self.url, self.headers, body)
        if answer is None:
            self._hand_over()
            super().on_message_complete()
            return
        self._held = None
        head = b"content-type: %b\r\ncontent-length: %d\r\n\r\n"
        self.transport.write(
            STATUS_LINE[answer.status]
            + head % (answer.content_type, len(answer.body))
            + answer.body
        )
        self.on_response_complete()

    @property
    def _service(self) -> ServiceApp:
        return cast("ServiceApp", self.app)

    def _hand_over(self) -> None:
        """Give a request that was held to uvicorn."""
        held, self._held = self._held or [], None
        super().on_headers_complete()
        for body in held:
            super().on_body(body)


class OwnConnection(ServiceConnection):
    """A connection of a Unix socket, from a process of the same user or of root.

    The socket's mode says the same, but not on every system, and not if its folder is opened up.
    """

    def connection_made(self, transport: Any) -> None:
        """Take a connection, or end it."""
        if not _is_own_peer(transport.get_extra_info("socket")):
            transport.abort()
            return
        super().connection_made(transport)

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the connection, if it was taken."""
        if self.transport is not None:
            super().connection_lost(exc)


def _is_own_peer(connection: socket.socket) -> bool:
    """Whether the process at the other end runs as this user or as root."""
    if hasattr(socket, "SO_PEERCRED"):  # Linux
        size = struct.calcsize("3i")
        peer = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, size)
        return struct.unpack("3i", peer)[1] in (os.geteuid(), 0)
    if sys.platform == "darwin":  # LOCAL_PEERCRED; a `struct xucred`: version, uid, groups
        peer = connection.getsockopt(0, 1, 76)
        return struct.unpack_from("2i", peer)[1] in (os.geteuid(), 0)
    return True
