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
"""An environment each; remove the folder to have them made anew."""
PATIENCE = 300
"""Seconds that an installation may take."""


class AbsentError(Exception):
    """A peer cannot be had; the message says why."""


def python(peer: Peer) -> Path:
    """The interpreter of a peer's environment, made where there is none. Raises `AbsentError`."""
    if not peer.requirements:
        return Path(sys.executable)
    folder = CACHE / peer.module
    interpreter, ready = folder / "bin" / "python", folder / ".ready"
    if not ready.exists():
        venv.create(folder, with_pip=True, clear=True)
        command = [str(interpreter), "-m", "pip", "install", "--quiet"]
        command += ["--disable-pip-version-check", *peer.requirements.split()]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE)
        except subprocess.TimeoutExpired:
            raise AbsentError(f"not installed within {PATIENCE} s") from None
        if done.returncode:
            raise AbsentError(_last(done.stderr, "cannot be installed"))
        ready.touch()
    return interpreter


class Process:
    """A peer at work: each line that it is sent is a block's number. Raises `AbsentError`."""

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
        self.version = str(self._heard())

    def __call__(self, turn: int) -> Figures:
        assert self._process.stdin is not None
        self._process.stdin.write(f"{turn}\n")
        self._process.stdin.flush()
        return cast("Figures", self._heard())

    def close(self) -> None:
        self._process.communicate()

    def _heard(self) -> object:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            _, told = self._process.communicate()
            raise AbsentError(_last(told, "stopped without a word"))
        return json.loads(line)


def _last(text: str, otherwise: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1][:200] if lines else otherwise
