"""A server that the proxy runs as a process of its own, and that never outlives the proxy."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Sequence

_GRACE = 2.0
"""Seconds that a server has to end after its input is closed, and again after SIGTERM."""

_POLL = 0.5
_READ_CHUNK = 262144

_REAPER = 'read -r _; kill -s TERM -- "-$1"; sleep 2; kill -s KILL -- "-$1"'
"""Waits until the proxy's end of a pipe closes, even by SIGKILL, and ends the server's group."""


class ServerProcess:
    """A server's process, in a process group of its own with all that it starts."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self._reaper = None if sys.platform == "win32" else _start_reaper(process.pid)
        assert process.stdin is not None  # noqa: S101 - it is a pipe
        assert process.stdout is not None  # noqa: S101 - it is a pipe
        self.input, self.output = process.stdin, process.stdout

    @classmethod
    async def start(cls, command: Sequence[str]) -> ServerProcess:
        """Start a server; its errors go where the proxy's go. Raises `OSError`."""
        process = await asyncio.create_subprocess_exec(
            *command,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            start_new_session=True,
            limit=_READ_CHUNK,
        )
        return cls(process)

    async def wait(self) -> int:
        """Return the exit code once the process has ended, though others may hold its pipes."""
        while self._process.returncode is None:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_POLL):
                    await self._process.wait()
        return self._process.returncode

    async def stop(self) -> int:
        """Close the server's input, and end what does not end then; return its exit code."""
        self.input.close()
        for signal_ in (None, signal.SIGTERM, signal.SIGKILL):
            if signal_ is not None:
                self._signal(signal_)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_GRACE):
                    await self.wait()
                    break
        self._signal(signal.SIGKILL)  # what it has started and left
        if self._reaper is not None:
            self._reaper.kill()
            self._reaper.communicate()
        return self._process.returncode or 0

    def _signal(self, signal_: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            if sys.platform == "win32":
                self._process.kill()
            else:
                os.killpg(self._process.pid, signal_)


def _start_reaper(group: int) -> subprocess.Popen[bytes]:
    return subprocess.Popen(  # noqa: S603 - a fixed script
        ["/bin/sh", "-c", _REAPER, "sh", str(group)],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
