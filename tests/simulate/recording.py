"""Recorded sessions in our own format, made for a test."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

START = 1_772_800_000_000_000_000
SECOND = 1_000_000_000


def read(path: str, text: str = "x", **result: Any) -> dict[str, Any]:
    """A call of `read` with its result."""
    return {"tool": "read", "args": {"path": path}, "text": text, **result}


def failed(tool: str, text: str, **args: Any) -> dict[str, Any]:
    """A call that failed explicitly."""
    return {"tool": tool, "args": args, "text": text, "ok": False}


def lines(
    session: str,
    calls: Iterable[dict[str, Any]],
    *,
    success: bool | None = None,
    closed: bool = True,
    timed: bool = True,
    **started: Any,
) -> Iterator[str]:
    """The lines of one session. Keys of a call besides `tool` and `args` are its result's."""

    def line(event: str, at: int, **fields: Any) -> str:
        time = {"at": START + at * SECOND} if timed else {}
        return json.dumps({"event": event, "session": session, **time, **fields})

    yield line("started", 0, **started)
    yield line("turn_started", 0)
    number = 0
    for number, call in enumerate(calls):
        result = {"ok": True, **call}
        tool, args = result.pop("tool"), result.pop("args")
        yield line("admitted", number, call=f"c{number}", tool=tool, args=args)
        yield line("completed", number, call=f"c{number}", **result)
    if closed:
        outcome = {} if success is None else {"success": success}
        yield line("closed", number + 1, **outcome)


def write(file: Path, *sessions: Iterable[str]) -> Path:
    """A trace file of sessions, one after the other."""
    file.write_text("".join(f"{line}\n" for session in sessions for line in session))
    return file


def policy(file: Path, text: str) -> Path:
    """A policy file."""
    file.write_text(f"policyguard: 1\nname: {file.stem}\n{text}\n")
    return file


NO_SECRETS = """
rules:
  no-secrets:
    {tools: [read], when: "call.args.path.startsWith('/secret')", message: "not {call.args.path}"}
"""
