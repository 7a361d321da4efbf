"""Journals for people: one event per terminal line."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec

from policyguard.engines.input_file import open_input
from policyguard.journal.chain import CHAIN_FIELDS
from policyguard.report.escape import for_terminal
from policyguard.store import json_lines

_MAX_CHARACTERS = 120
"""The number of characters shown of a value."""
_TYPE_WIDTH = 12
_INTERNAL = frozenset(
    {
        "fingerprint",
        "exact",
        "like",
        "likeness",
        "numbers",
        "keys",
        "charges",
        "insisted",
        "asks",
        "targets",
        "result_fingerprint",
        "error_fingerprint",
    }
)
"""Fields that rebuild state and tell people nothing."""
_UNNAMED = ("call", "tool", "args", "effect", "violations", "text", "error")
"""Fields shown first, without their names, in this order."""
_TIMES = ("wall", "expires_at")
_HIDDEN = _INTERNAL | {"event", "session", "at", *CHAIN_FIELDS, *_UNNAMED}


def read_lines(path: Path, wait: Callable[[], None] | None = None) -> Iterator[bytes]:
    """Yield the file's complete lines, without line feeds. Raises `OSError`.

    With `wait`, call it at the end of the file and continue forever. A torn line that is repaired
    meanwhile is read as repaired.
    """
    complete = 0
    with open_input(path) as file:
        while True:
            file.seek(complete)
            for line in json_lines.read_lines(file):
                if not line.endswith(b"\n"):
                    break
                complete += len(line)
                yield line[:-1]
            if wait is None:
                return
            wait()


def is_event(line: bytes) -> bool:
    """Whether a line is an event of a journal or of a trace in policyguard's format."""
    event = _decode(line)
    return isinstance(event, dict) and isinstance(event.get("event"), str)


def format_line(line: bytes) -> str:
    """Format a line of a journal or trace for a terminal, without its session."""
    event = _decode(line)
    if not isinstance(event, dict):
        return for_terminal(f"not an event: {line.decode('utf-8', 'replace')}", _MAX_CHARACTERS)
    parts = [_format_time(event.get("at")), f"{_format_value(event.get('event')):<{_TYPE_WIDTH}}"]
    parts += [
        _format_value(event[name]) for name in _UNNAMED if event.get(name) not in (None, "", [], {})
    ]
    parts += [
        f"{name}={_format_time(value) if name in _TIMES else _format_value(value)}"
        for name, value in event.items()
        if name not in _HIDDEN
    ]
    return " ".join(parts).rstrip()


def format_session(line: bytes) -> str:
    """Format the session of a line for a terminal; empty if it has none."""
    event = _decode(line)
    return _format_value(event.get("session", "")) if isinstance(event, dict) else ""


def _decode(line: bytes) -> Any:
    try:
        return msgspec.json.decode(line)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return None


def _format_time(at: Any) -> str:
    if not isinstance(at, int):
        return "-"
    try:
        moment = datetime.fromtimestamp(at // 1_000_000_000, UTC)
    except (OverflowError, ValueError, OSError):
        return str(at)[:_MAX_CHARACTERS]
    return f"{moment:%Y-%m-%d %H:%M:%S}.{at % 1_000_000_000 // 1_000_000:03}"


def _format_value(value: Any) -> str:
    text = value if isinstance(value, str) else msgspec.json.encode(value).decode()
    return for_terminal(text, _MAX_CHARACTERS)
