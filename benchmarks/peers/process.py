"""A peer's environment and its process."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import venv
from pathlib import Path
from typing import cast

from benchmarks.measure import Figures
from benchmarks.peers.catalog import Peer

ROOT = Path(__file__).resolve().parents[2]
CACHE = ROOT / "benchmarks" / ".peers"
"""One environment per peer; remove the folder to rebuild them."""
INSTALL_TIMEOUT = 300
"""Seconds."""


class UnavailableError(Exception):
    """A peer cannot run; the message says why."""


def python(peer: Peer) -> Path:
    """Return the interpreter of a peer's environment, which is created if necessary."""
    if not peer.requirements:
        return Path(sys.executable)
    folder = CACHE / peer.module
    interpreter, ready = folder / "bin" / "python", folder / ".ready"
    if not ready.exists():
        venv.create(folder, with_pip=True, clear=True)
        command = [str(interpreter), "-m", "pip", "install", "--quiet"]
        command += ["--disable-pip-version-check", *peer.requirements.split()]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=INSTALL_TIMEOUT)
        except subprocess.TimeoutExpired:
            raise UnavailableError(f"not installed within {INSTALL_TIMEOUT} s") from None
        if done.returncode:
            raise UnavailableError(_last(done.stderr, "cannot be installed"))
        ready.touch()
    return interpreter


class Process:
    """A running peer; it receives the number of each block. Raises `UnavailableError`."""

    def __init__(self, peer: Peer) -> None:
        command = [str(python(peer)), "-m", f"benchmarks.peers.{peer.module}", *peer.arguments]
        environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONWARNINGS": "ignore"}
        self._process = subprocess.Popen(
            command,
            cwd=ROOT,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.version = str(self._receive())

    def __call__(self, turn: int) -> Figures:
        assert self._process.stdin is not None
        self._process.stdin.write(f"{turn}\n")
        self._process.stdin.flush()
        return cast("Figures", self._receive())

    def close(self) -> None:
        self._process.communicate()

    def _receive(self) -> object:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            _, errors = self._process.communicate()
            raise UnavailableError(_last(errors, "stopped without a message"))
        return json.loads(line)


def _last(text: str, otherwise: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1][:200] if lines else otherwise
