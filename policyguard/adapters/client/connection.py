"""The way to the service, for programs that live for one call.

Such a program starts for each call of an agent, so every import is time that the agent waits. This
module needs parts of the standard library alone that cost nothing: `_socket` is what `socket` wraps
(and takes 1 ms of its own instead of 10), and a request is written by hand.
"""

from __future__ import annotations

import os
import sys
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

_POLL = 0.005
_IDLE = "1800"
"""Seconds without a request after which a service that was started here ends."""
_MAX_HEAD = 65536


class Unavailable(Exception):  # noqa: N818 - a state, not always an error
    """No service answered; the request may have arrived, if it was `sent`."""

    def __init__(self, reason: str, *, sent: bool = False) -> None:
        super().__init__(reason)
        self.sent = sent


def post(
    socket_path: str,
    path: str,
    body: bytes,
    *,
    timeout: float = 10.0,
    token: str = "",
    wait: str = "",
) -> tuple[int, dict[str, str], bytes]:
    """Return the status, the headers (names in lower case) and the body of the answer.

    `timeout` is in seconds, for the whole exchange. `wait` says how long a hook's request may wait
    for a person (`WAIT_HEADER` of the service). Raises `Unavailable`.
    """
    import _socket

    connection = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM)
    deadline = time.monotonic() + timeout
    sent = False
    try:
        connection.settimeout(timeout)
        connection.connect(socket_path)
        _require_own(_socket, connection)
        head = f"POST {path} HTTP/1.1\r\nhost: policyguard\r\nconnection: close\r\n"
        head += f"authorization: Bearer {token}\r\n" if token else ""
        head += f"policyguard-wait: {wait}\r\n" if wait else ""
        head += f"content-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
        sent = True
        connection.sendall(head.encode() + body)
        received = bytearray()
        while True:
            connection.settimeout(max(0.001, deadline - time.monotonic()))
            chunk = connection.recv(262144)
            if not chunk:
                return _parse(bytes(received))
            received += chunk
    except (OSError, ValueError) as error:
        raise Unavailable(str(error) or type(error).__name__, sent=sent) from None
    finally:
        connection.close()


def _require_own(sockets: object, connection: object) -> None:
    """Raise `ValueError` if the other end is another user's process."""
    if not hasattr(sockets, "SO_PEERCRED"):
        return
    peer = connection.getsockopt(sockets.SOL_SOCKET, sockets.SO_PEERCRED, 12)  # type: ignore[attr-defined]  # see `post`
    if int.from_bytes(peer[4:8], sys.byteorder) not in (os.geteuid(), 0):
        raise ValueError("the socket is served by another user's process")


def _parse(received: bytes) -> tuple[int, dict[str, str], bytes]:
    """Split an answer. Raises `ValueError` for one that is cut off."""
    head, found, body = received.partition(b"\r\n\r\n")
    if not found or len(head) > _MAX_HEAD or not head.startswith(b"HTTP/1."):
        raise ValueError("the answer is cut off")
    status, *lines = head.decode("latin-1").split("\r\n")
    pairs = [line.partition(":") for line in lines]
    headers = {name.lower(): value.strip() for name, _, value in pairs}
    if len(body) != int(headers.get("content-length", "-1")):
        raise ValueError("the answer is cut off")
    return int(status.split(" ")[1]), headers, body


def start(socket_path: str, command: Sequence[str], *, timeout: float = 5.0) -> bool:
    """Start the service, unless another program is about to, and wait until it listens.

    `command` is what to run; its log is beside the socket. Returns whether it listens.
    """
    try:
        folder = os.path.dirname(socket_path)  # noqa: PTH120 - pathlib takes 5 ms to import
        os.makedirs(folder, 0o700, exist_ok=True)  # noqa: PTH103
        flags = os.O_CREAT | os.O_RDWR | os.O_CLOEXEC
        lock = os.open(f"{socket_path}.starting", flags, 0o600)
    except OSError:
        return False
    try:
        return _start_locked(socket_path, command, lock, time.monotonic() + timeout)
    finally:
        os.close(lock)


def _start_locked(socket_path: str, command: Sequence[str], lock: int, deadline: float) -> bool:
    """Start the service if the lock on its start is free, else wait for its holder."""
    import fcntl

    process = 0
    while time.monotonic() < deadline:
        if _listens(socket_path):
            return True
        if process:
            if os.waitpid(process, os.WNOHANG)[0]:  # another was faster, or it failed
                return _listens(socket_path)
        else:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                process = _spawn(command, f"{socket_path}.log")
            except OSError:
                pass  # another program starts it
        time.sleep(_POLL)
    return False


def ask(
    socket_path: str,
    path: str,
    body: bytes,
    serve: Sequence[str],
    deadline: float,
    *,
    repeated: bytes | None = None,
    wait: str = "",
) -> tuple[int, dict[str, str], bytes] | None:
    """Return the answer of the service, started with `serve` if need be; None if none can run.

    `deadline` is on the monotonic clock, `wait` as in `post`. A request whose answer was lost is
    sent once more, as `repeated` if that is given. Raises `Unavailable` if there is no answer in
    time.
    """
    for sent in (body, repeated or body):
        try:
            left = deadline - time.monotonic()
            return post(socket_path, path, sent, timeout=left, wait=wait)
        except Unavailable:
            left = deadline - time.monotonic() - 1
            if left <= 0:
                raise Unavailable(f"no answer at {socket_path} in time") from None
            if not start(socket_path, serve, timeout=left):
                break
    return None


def serve_command(socket_path: str, policies: Sequence[str], store: Sequence[str]) -> list[str]:
    """Return the command that starts the service of a policy and a store, until it is idle."""
    command = [sys.executable, "-m", "policyguard", "serve", "--socket", socket_path]
    command += [part for policy in policies for part in ("--policy", policy)]
    command += [part for file in store for part in ("--store", file)]
    return [*command, "--idle", _IDLE]


def _listens(socket_path: str) -> bool:
    import _socket  # as in `post`

    connection = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM)
    try:
        connection.connect(socket_path)
    except OSError:
        return False
    finally:
        connection.close()
    return True


def _spawn(command: Sequence[str], log: str) -> int:
    """Start a process in a session of its own: it must outlive the agent's process group."""
    write = os.O_CREAT | os.O_WRONLY | os.O_APPEND
    actions = [
        (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
        (os.POSIX_SPAWN_OPEN, 1, log, write, 0o600),
        (os.POSIX_SPAWN_DUP2, 1, 2),
    ]
    arguments = [*command]
    try:
        return os.posix_spawn(command[0], arguments, os.environ, file_actions=actions, setsid=True)
    except NotImplementedError:  # macOS
        return os.posix_spawn(command[0], arguments, os.environ, file_actions=actions, setpgroup=0)
