"""A command at a pseudo-terminal, as a person sees it."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


def run_at_terminal(*args: str | Path, columns: int = 80, **environment: str) -> tuple[int, str]:
    """Run `policyguard` with both outputs at a terminal. Return its exit code and the text."""
    pty = pytest.importorskip("pty", reason="needs a pseudo-terminal")
    ours, theirs = pty.openpty()
    inherited = {name: value for name, value in os.environ.items() if name != "NO_COLOR"}
    process = subprocess.Popen(
        [sys.executable, "-m", "policyguard", *map(str, args)],
        stdout=theirs,
        stderr=theirs,
        env={**inherited, "TERM": "xterm", "COLUMNS": str(columns), **environment},
        cwd=ROOT,
    )
    os.close(theirs)
    shown = b""
    with contextlib.suppress(OSError):  # on Linux the end of a terminal is an error
        while data := os.read(ours, 65536):
            shown += data
    os.close(ours)
    return process.wait(), shown.decode().replace("\r\n", "\n")
