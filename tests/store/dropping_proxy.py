"""A proxy before a server that can drop what it is sent, as a network does that refuses nothing."""

from __future__ import annotations

import selectors
import socket
import threading
from contextlib import suppress

_CHUNK_BYTES = 65_536


class DroppingProxy:
    """A proxy on a loopback `port`. While `is_dropping`, nothing passes, and nothing is refused."""

    def __init__(self, target: int) -> None:
        self._target = target
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self.is_dropping = False
        self._is_closed = False
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                client = self._listener.accept()[0]
            except OSError:
                return
            threading.Thread(target=self._pass, args=(client,), daemon=True).start()

    def _pass(self, client: socket.socket) -> None:
        with client, suppress(OSError):
            while self.is_dropping and not self._is_closed:
                threading.Event().wait(0.02)
            with (
                socket.create_connection(("127.0.0.1", self._target)) as server,
                selectors.DefaultSelector() as selector,  # of `select` the numbers of files are few
            ):
                for one, other in ((client, server), (server, client)):
                    selector.register(one, selectors.EVENT_READ, (one, other))
                while not self._is_closed:
                    if self.is_dropping:
                        threading.Event().wait(0.02)
                        continue
                    for key, _ in selector.select(0.05):
                        one, other = key.data
                        received = one.recv(_CHUNK_BYTES)
                        if not received:
                            return
                        if not self.is_dropping:
                            other.sendall(received)

    def close(self) -> None:
        """Accept and pass no more."""
        self._is_closed = True
        self._listener.close()
