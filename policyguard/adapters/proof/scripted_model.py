"""A model on loopback that says what a script says, in the protocols that hosts speak."""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from policyguard.adapters.proof.protocols import PROTOCOLS
from policyguard.adapters.proof.script import Script

_MAX_BODY = 64 * 1024 * 1024


class ScriptedModel:
    """A running model: `port` is where it listens, `requests` what it was asked."""

    def __init__(self, script: Script) -> None:
        self.requests: list[dict[str, Any]] = []
        handler = type("Handler", (_Handler,), {"model": self})
        self._server = _Server(("127.0.0.1", 0), handler)
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


class _Server(ThreadingHTTPServer):
    """A server whose clients may go at any time: hosts are killed in the midst of a request."""

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Print nothing of a client that has gone."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)


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
        answer = next((PROTOCOLS[end] for end in PROTOCOLS if path.endswith(end)), None)
        if answer is None:
            self._send({})
            return
        reply = answer(self.model.script, body, "stream" in path)
        if reply.events is None:
            self._send(reply.document)
        else:
            self._stream(reply.events)

    def _send(self, document: dict[str, Any]) -> None:
        body = json.dumps(document).encode()
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def _stream(self, events: Iterable[tuple[str, dict[str, Any]]]) -> None:
        """Send server-sent events, each with its name unless that is empty."""
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("connection", "close")
        self.end_headers()
        for name, data in events:
            head = f"event: {name}\n" if name else ""
            self.wfile.write(f"{head}data: {json.dumps(data)}\n\n".encode())
        self.close_connection = True
