"""A client without an SDK, of a proxy in a process of its own."""

from __future__ import annotations

import json
import os
import selectors
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, Self

from tests.kept_policies import keep_compiled

RAW_SERVER = str(Path(__file__).with_name("raw_server.py"))
_SECONDS = 20


class RawClient:
    """Speaks lines with a proxy in front of the raw server."""

    def __init__(self, folder: Path, policy: str, *options: str, mode: str = "") -> None:
        self.log = folder / "received"
        server = [sys.executable, RAW_SERVER, str(self.log), *([mode] if mode else [])]
        command = [sys.executable, "-m", "policyguard", "mcp", "--policy", policy, *options]
        keep_compiled(policy)
        named = [] if "--server" in options else ["--server", "raw"]
        self.process = subprocess.Popen(
            [*command, *named, "--", *server],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        self._kept = b""
        self._next = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        for pipe in (self.process.stdin, self.process.stdout, self.process.stderr):
            if pipe is not None:
                pipe.close()
        self.process.wait()

    def write(self, line: bytes) -> None:
        """Send a line."""
        assert self.process.stdin is not None
        self.process.stdin.write(line + b"\n")
        self.process.stdin.flush()

    def send(self, method: str, params: Any = None, **members: Any) -> int:
        """Send a request; return its id."""
        self._next += 1
        message = {"jsonrpc": "2.0", "id": self._next, "method": method, **members}
        self.write(
            json.dumps(message if params is None else {**message, "params": params}).encode()
        )
        return self._next

    def notify(self, method: str, params: Any = None) -> None:
        """Send a notification."""
        self.write(json.dumps({"jsonrpc": "2.0", "method": method, "params": params}).encode())

    def respond(self, id_: Any, result: Any) -> None:
        """Send the response to a request of the server or the proxy."""
        self.write(json.dumps({"jsonrpc": "2.0", "id": id_, "result": result}).encode())

    def read_line(self) -> bytes:
        """Return the next line."""
        assert self.process.stdout is not None
        fd, deadline = self.process.stdout.fileno(), time.monotonic() + _SECONDS
        with selectors.DefaultSelector() as selector:
            selector.register(fd, selectors.EVENT_READ)
            while b"\n" not in self._kept:
                assert selector.select(max(0, deadline - time.monotonic())), "no answer"
                chunk = os.read(fd, 1 << 20)
                if not chunk:
                    raise EOFError
                self._kept += chunk
        line, _, self._kept = self._kept.partition(b"\n")
        return line

    def read(self) -> Any:
        """Return the next message."""
        return json.loads(self.read_line())

    def call(self, tool: str, **arguments: Any) -> Any:
        """Call a tool and return the response, which is the next message."""
        id_ = self.send("tools/call", {"name": tool, "arguments": arguments})
        message = self.read()
        assert message["id"] == id_, message
        return message

    def open(self, **capabilities: Any) -> Any:
        """Begin a session."""
        info = {"name": "tester", "version": "1"}
        params = {
            "protocolVersion": "2025-11-25",
            "clientInfo": info,
            "capabilities": capabilities,
        }
        self.send("initialize", params)
        return self.read()

    def received(self) -> list[Any]:
        """Return what has reached the server."""
        return [json.loads(line) for line in self.log.read_text().splitlines()]

    def calls(self, count: int) -> list[Any]:
        """Return the ids of the calls that have reached the server, once there are so many."""
        deadline = time.monotonic() + _SECONDS
        while True:
            got = [one["id"] for one in self.received() if one.get("method") == "tools/call"]
            if len(got) >= count or time.monotonic() > deadline:
                return got
            time.sleep(0.02)

    def server_pid(self) -> int:
        """Return the process id of the server."""
        return int(wait_for(Path(f"{self.log}.pid")))


def wait_for(file: Path) -> str:
    """Return what is in a file, as soon as there is something."""
    deadline = time.monotonic() + _SECONDS
    while time.monotonic() < deadline:
        if file.exists() and (text := file.read_text()):
            return text
        time.sleep(0.02)
    raise AssertionError(f"{file} was not written")


def is_gone(pid: int) -> bool:
    """Whether a process ends in time; one that nobody has waited for has ended."""
    deadline = time.monotonic() + _SECONDS
    while time.monotonic() < deadline:
        try:
            os.kill(pid, 0)
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        except (ProcessLookupError, FileNotFoundError):
            return True
        if state == "Z":
            return True
        time.sleep(0.05)
    return False
