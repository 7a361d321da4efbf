"""The floor: the minimum work of such a guard in Python, which policyguard is measured against.

A fingerprint of the call, a budget, a constraint lookup, a window with its counts, the time, and
the set of signatures on failures; a call that failed twice the same way is banned. No policy,
classes, reasons, threads or error handling.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable
from hashlib import sha256
from time import time_ns
from typing import Any

import msgspec
import re2

_encode = msgspec.msgpack.Encoder(order="deterministic").encode
WINDOW = 256
SIGNATURES = (
    r"(?i)\bnot found\b",
    r"(?i)\bno such file or directory\b",
    r"(?i)\bHTTP 50[0234]\b",
    r"(?i)\bunexpected token\b",
    r"(?i)\btimed out\b",
    r"(?i)\bpermission denied\b",
    r"(?i)\bconnection (?:refused|reset)\b",
    r"(?i)\brate limit",
    r"(?i)\bout of memory\b",
    r"(?i)\bno space left\b",
    r"(?i)\bsegmentation fault\b",
    r"(?i)\balready exists\b",
)


class Decision:
    """The result of a check."""

    __slots__ = ("allowed", "fingerprint", "reason", "tool")

    def __init__(self, allowed: bool, reason: str, tool: str, fingerprint: bytes) -> None:
        self.allowed = allowed
        self.reason = reason
        self.tool = tool
        self.fingerprint = fingerprint


class Floor:
    """A session. With `write`, events become lines, each chained to the previous one.

    Two per call, like policyguard's journal, or without `line_on_check` one, at its end.
    """

    def __init__(
        self, write: Callable[[bytes], object] | None = None, *, line_on_check: bool = True
    ) -> None:
        self._window: deque[bytes] = deque()
        self._counts: dict[bytes, int] = {}
        self._evidence: dict[tuple[bytes, int], int] = {}
        self._banned: dict[bytes, int] = {}
        self._used: dict[str, int] = {}
        self._budget = 1 << 60
        self._repeats = 4
        self._deadline = time_ns() + 10**15
        self._match = _compile_signatures().Match
        self._write = write
        self._line_on_check = line_on_check and write is not None
        self._previous = b"0" * 64
        self._seq = 0

    def check(self, tool: str, args: dict[str, Any]) -> Decision:
        fingerprint = sha256(_encode((tool, args))).digest()
        used = self._used.get(tool, 0)
        if used >= self._budget:
            return Decision(False, "budget", tool, fingerprint)
        now = time_ns()
        if now > self._deadline:
            return Decision(False, "time", tool, fingerprint)
        if self._banned and fingerprint in self._banned:
            return Decision(False, "constraint", tool, fingerprint)
        counts = self._counts
        seen = counts.get(fingerprint, 0)
        if seen >= self._repeats:
            return Decision(False, "repeat", tool, fingerprint)
        counts[fingerprint] = seen + 1
        window = self._window
        window.append(fingerprint)
        if len(window) > WINDOW:
            oldest = window.popleft()
            remaining = counts[oldest] - 1
            if remaining:
                counts[oldest] = remaining
            else:
                del counts[oldest]
        self._used[tool] = used + 1
        if self._line_on_check:
            self._write_line(b"admitted", tool, fingerprint, now, -1)
        return Decision(True, "", tool, fingerprint)

    def record(self, decision: Decision, error: str | None) -> int:
        signature = -1
        if error is not None:
            matches = self._match(error.encode("utf-8", "replace"))
            if len(SIGNATURES) not in matches:
                raise RuntimeError("the set of signatures ran out of memory")
            if len(matches) > 1:
                signature = min(matches)
                key = decision.fingerprint, signature
                self._evidence[key] = count = self._evidence.get(key, 0) + 1
                if count == 2:
                    self._banned[decision.fingerprint] = signature
        if self._write is not None:
            self._write_line(
                b"completed", decision.tool, decision.fingerprint, time_ns(), signature
            )
        return signature

    def _write_line(
        self, kind: bytes, tool: str, fingerprint: bytes, at: int, signature: int
    ) -> None:
        assert self._write is not None
        self._seq = seq = self._seq + 1
        body = b'{"event":"%s","seq":%d,"at":%d,"tool":"%s","fp":"%s","sig":%d,"prev":"%s"' % (
            kind,
            seq,
            at,
            tool.encode(),
            fingerprint.hex().encode(),
            signature,
            self._previous,
        )
        self._previous = sha256(body).hexdigest().encode()
        self._write(b'%s,"hash":"%s"}\n' % (body, self._previous))


def open_appender(path: str) -> Callable[[bytes], object]:
    """Return a function that appends a line to a file with one write(2)."""
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    return lambda line: os.write(file, line)


def _compile_signatures() -> Any:
    options = re2.Options()
    options.log_errors = False
    options.never_capture = True
    patterns = re2._re2.Set(re2._Anchor.UNANCHORED, options)
    for pattern in (*SIGNATURES, r"\z"):
        patterns.Add(pattern.encode())
    patterns.Compile()
    return patterns


def discard(line: bytes) -> None:
    """Discard a line."""
