"""An HTTP exchange that ends in time, also if its bytes trickle: `urllib` bounds silence only."""

from __future__ import annotations

import socket
import urllib.request
from contextlib import suppress
from functools import partial
from http.client import HTTPConnection, HTTPResponse, HTTPSConnection
from threading import Timer
from typing import Any, Self


class Deadline:
    """Ends the connections of its handlers after `seconds`; use it with `with`."""

    def __init__(self, seconds: float) -> None:
        self.is_over = False
        self._sockets: list[socket.socket] = []
        self._timer = Timer(seconds, self._end)
        self._timer.daemon = True

    def __enter__(self) -> Self:
        self._timer.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._timer.cancel()
        for connected in self._sockets:
            descriptor = connected.detach()  # an answer that was not read keeps it open
            if descriptor >= 0:
                socket.close(descriptor)

    def handlers(self) -> tuple[urllib.request.BaseHandler, ...]:
        """Return the handlers of an opener whose connections end in time."""
        return _HTTPHandler(self), _HTTPSHandler(self)

    def watch(self, connected: socket.socket) -> None:
        """End this connection, too."""
        self._sockets.append(connected)
        if self.is_over:
            self._end()

    def _end(self) -> None:
        self.is_over = True
        for connected in self._sockets:
            with suppress(OSError):  # it has ended
                socket.socket.shutdown(connected, socket.SHUT_RDWR)  # TLS would be dropped, too


class _Connection(HTTPConnection):
    def __init__(self, host: str, *, deadline: Deadline, **options: Any) -> None:
        super().__init__(host, **options)
        self._deadline = deadline

    def connect(self) -> None:
        super().connect()
        self._deadline.watch(self.sock)


class _SecureConnection(HTTPSConnection):
    def __init__(self, host: str, *, deadline: Deadline, **options: Any) -> None:
        super().__init__(host, **options)
        self._deadline = deadline

    def connect(self) -> None:
        super().connect()
        self._deadline.watch(self.sock)


class _HTTPHandler(urllib.request.HTTPHandler):
    def __init__(self, deadline: Deadline) -> None:
        super().__init__()
        self._deadline = deadline

    def http_open(self, req: urllib.request.Request) -> HTTPResponse:
        return self.do_open(partial(_Connection, deadline=self._deadline), req)


class _HTTPSHandler(urllib.request.HTTPSHandler):
    def __init__(self, deadline: Deadline) -> None:
        super().__init__()
        self._deadline = deadline

    def https_open(self, req: urllib.request.Request) -> HTTPResponse:
        return self.do_open(partial(_SecureConnection, deadline=self._deadline), req)
