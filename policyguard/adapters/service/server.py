"""The service's process: sockets, who may connect, and when it ends."""

from __future__ import annotations

import asyncio
import errno
import os
import secrets
import socket
import stat
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self

import uvicorn

import policyguard
from policyguard.adapters.service.app import ServiceApp
from policyguard.adapters.service.connection import OwnConnection, ServiceConnection
from policyguard.adapters.service.reload import PolicyReload
from policyguard.guard.guard import Guard
from policyguard.model.errors import PolicyguardError
from policyguard.store.paths import FILE_MODE, ensure_private_folder, hide_address

LOOPBACK = ("127.0.0.1", "::1", "localhost")
_BACKLOG = 2048
"""Connections that may wait to be accepted; uvicorn's own default."""

_INTERVAL = 1.0
"""Seconds between two looks at what is installed."""

_MIN_TOKEN_CHARS = 16
_TOKEN_BYTES = 32


_CONSOLE_SETTINGS: dict[str, Any] = {
    "interface": "asgi3",
    "proxy_headers": False,
    "access_log": False,
    "lifespan": "off",
    "ws": "none",
    "server_header": False,
    "date_header": False,
    "timeout_graceful_shutdown": 1,
}


class _ConsoleServer(uvicorn.Server):
    """A server beside the service's own, which has the process's signals."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave signals to the service."""
        yield


class ServiceError(PolicyguardError):
    """The service cannot be started: `str()` of it says what to do."""


class Service:
    """A guard behind a Unix socket or a loopback port, until it is stopped or idle.

    `idle` is after how many seconds without a request it ends; None: never. As a context manager
    it closes its guard. Raises what `Guard.load` raises.
    """

    def __init__(
        self,
        policies: Sequence[str],
        store: str | Path,
        *,
        token: str = "",
        admin_token: str = "",
        idle: float | None = None,
    ) -> None:
        self._idle = idle
        self._latest = time.monotonic()
        self.app = ServiceApp(
            Guard.load([*policies], store=store),
            store=str(hide_address(store)),
            token=token,
            admin_token=admin_token,
            on_request=self._note_request,
            on_shutdown=self.shut_down,
        )
        self.app.reload = self._reload = PolicyReload(self.app, policies, store)
        self.app.open_console = self._open_console
        self._policies = tuple(policies)
        self._server: uvicorn.Server | None = None
        self._console_server: _ConsoleServer | None = None
        self._console_task: asyncio.Task[None] | None = None
        self._console_lock = asyncio.Lock()

    @property
    def policy(self) -> str:
        """The name of the policy in force."""
        return self.app.guard.policy

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.app.close()

    def run_socket(self, path: Path, announce: Callable[[str], None]) -> None:
        """Serve on a Unix socket (0600); `announce` says that it is served, once clients may come.

        Raises `ServiceError` if another service serves it.
        """
        listener, lock = _bind(path)
        try:
            listener.listen(_BACKLOG)
            announce(f"serving {self.policy} at {path}")
            self._run(listener, OwnConnection)
        finally:
            path.unlink(missing_ok=True)
            listener.close()
            os.close(lock)

    def run_port(self, host: str, port: int, announce: Callable[[str], None]) -> None:
        """Serve on a port of the loopback interface, as `run_socket` does."""
        if host not in LOOPBACK:
            raise ServiceError(f"`{host}` is not a loopback address: use one of {LOOPBACK}")
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        try:
            listener = socket.create_server((host, port), family=family, backlog=_BACKLOG)
        except OSError as error:
            reason = f"cannot listen on {host}:{port}: {error.strerror}; use another --port"
            raise ServiceError(reason) from None
        with listener:
            name = f"[{host}]" if ":" in host else host
            announce(f"serving {self.policy} on http://{name}:{port}")
            self._run(listener, ServiceConnection)

    def _run(self, listener: socket.socket, connections: type[ServiceConnection]) -> None:
        config = uvicorn.Config(
            self.app,
            interface="asgi3",
            proxy_headers=False,
            log_level="warning",
            access_log=False,
            lifespan="off",
            ws="none",
            server_header=False,
            date_header=False,
            timeout_keep_alive=3600,
            timeout_graceful_shutdown=5,
            http=connections,
        )
        self._server = uvicorn.Server(config)
        asyncio_runner = asyncio.Runner(loop_factory=config.get_loop_factory())
        with asyncio_runner:
            asyncio_runner.run(self._serve(self._server, listener))

    async def _serve(self, server: uvicorn.Server, listener: socket.socket) -> None:
        watchers = [
            asyncio.create_task(self._end_when_idle(server)),
            asyncio.create_task(self._end_when_upgraded(server)),
            asyncio.create_task(self._reload.watch()),
        ]
        try:
            await server.serve(sockets=[listener])
        finally:
            for watcher in watchers:
                watcher.cancel()
            if self._console_server is not None and self._console_task is not None:
                self._console_server.should_exit = True
                await self._console_task

    async def _open_console(self, by: str, labels: tuple[str, ...]) -> str:
        """Return the address of the console for a person; it is served from the first one on."""
        from policyguard.adapters.service.console.answers import Person
        from policyguard.adapters.service.console.app import Console

        async with self._console_lock:
            console = self.app.console
            if console is None:
                console = self.app.console = Console(self.app, self._policies)
                await asyncio.to_thread(console.load_history)
            if self._console_task is None:
                listener = socket.create_server(("127.0.0.1", 0))
                console.port = listener.getsockname()[1]
                config = uvicorn.Config(console, log_level="warning", **_CONSOLE_SETTINGS)
                self._console_server = _ConsoleServer(config)
                serve = self._console_server.serve(sockets=[listener])
                self._console_task = asyncio.create_task(serve)
            return f"http://127.0.0.1:{console.port}/#{console.add_person(Person(by, labels))}"

    def shut_down(self) -> None:
        """End after the requests that are under way."""
        if self._server is not None:
            self._server.should_exit = True

    def _note_request(self) -> None:
        self._latest = time.monotonic()

    async def _end_when_upgraded(self, server: uvicorn.Server) -> None:
        """End once another version is installed: the next client starts that one."""
        installed = _installed_files()
        while _installed_files() == installed:
            await asyncio.sleep(_INTERVAL)
        server.should_exit = True

    async def _end_when_idle(self, server: uvicorn.Server) -> None:
        while self._idle is not None:
            left = self._latest + self._idle - time.monotonic()
            if left <= 0:
                server.should_exit = True
                return
            await asyncio.sleep(left)


def _installed_files() -> tuple[int, int] | None:
    """Return what changes when policyguard is installed anew; None while that is under way."""
    try:
        status = Path(policyguard.__file__).stat()
    except OSError:
        return None
    return status.st_ino, status.st_mtime_ns


def _bind(path: Path) -> tuple[socket.socket, int]:
    """Return a listening socket and a lock that says that its service is alive.

    A socket's file outlives a killed process. The holder of the lock may replace it: so of several
    services that start at once one serves, and the others raise `ServiceError`.
    """
    import fcntl

    ensure_private_folder(path.parent)
    lock = os.open(path.with_name(f"{path.name}.lock"), os.O_CREAT | os.O_RDWR, FILE_MODE)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(lock)
        raise ServiceError(f"a service runs at {path} already") from None
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    mask = os.umask(0o177)
    try:
        if path.is_socket():  # no other kind of file is replaced
            path.unlink(missing_ok=True)
        listener.bind(str(path))
    except OSError as error:
        listener.close()
        os.close(lock)
        reason = "the path is too long" if len(str(path)) > 100 else error.strerror
        if error.errno == errno.EADDRINUSE:
            reason = "that is a file of another kind"
        raise ServiceError(f"cannot listen at {path}: {reason}; use another --socket") from None
    finally:
        os.umask(mask)
    listener.listen(128)
    return listener, lock


def read_token(path: Path) -> str:
    """Return the token in a private file, which is made if there is none. Raises `ServiceError`."""
    try:
        made = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, FILE_MODE)
    except FileExistsError:
        pass
    except OSError as error:
        raise ServiceError(f"{path}: cannot be made: {error.strerror}") from None
    else:
        with os.fdopen(made, "w", encoding="ascii") as file:
            file.write(secrets.token_urlsafe(_TOKEN_BYTES) + "\n")
    try:
        status = path.stat()
        token = path.read_text("ascii").strip()
    except (OSError, UnicodeDecodeError):
        raise ServiceError(f"{path}: the token cannot be read; use another file") from None
    if status.st_uid != os.geteuid() or status.st_mode & (stat.S_IRWXG | stat.S_IRWXO):
        raise ServiceError(f"{path}: others may read the token; run chmod 600 {path}")
    if len(token) < _MIN_TOKEN_CHARS or not token.isprintable() or " " in token:
        raise ServiceError(f"{path}: not a token of {_MIN_TOKEN_CHARS} characters or more")
    return token
