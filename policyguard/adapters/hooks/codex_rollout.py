"""Codex's rollout, the log of a session: it has the exit codes, and the calls without an event."""

from __future__ import annotations

import os
from collections.abc import Collection
from typing import Any, NamedTuple

import msgspec

from policyguard.adapters.json_text import decode

_TAIL = 256 * 1024
"""How many bytes of a rollout are read, from its end."""


class LoggedCall(NamedTuple):
    """What a rollout says of a call.

    `output` is what the model was given, None as long as the call has not returned.
    """

    exit_code: int | None = None
    output: str | None = None


def read_calls(path: object, calls: Collection[str]) -> dict[str, LoggedCall]:
    """Return what the end of a rollout says of some calls; nothing if it cannot be read."""
    found: dict[str, LoggedCall] = {}
    names = [call.encode() for call in calls]
    for line in _read_tail(path) if isinstance(path, str) and names else ():
        if any(name in line for name in names):
            try:
                _note(found, decode(line), calls)
            except (msgspec.DecodeError, KeyError, TypeError, AttributeError):
                continue  # not a line that we know, or the end of one
    return found


def _read_tail(path: str) -> list[bytes]:
    try:
        with open(path, "rb") as file:  # noqa: PTH123 - what is no path is an error that is caught
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - _TAIL))
            return file.read(_TAIL).splitlines()
    except (OSError, ValueError):
        return []


def _note(found: dict[str, LoggedCall], line: dict[str, Any], calls: Collection[str]) -> None:
    """Note what a line says of a call."""
    payload = line["payload"]
    if payload["type"] == "item_completed":
        item = payload["item"]
        call, code = item["id"], item.get("exit_code")
        if call in calls and isinstance(code, int):
            found[call] = found.get(call, LoggedCall())._replace(exit_code=code)
    elif payload["type"].endswith("_call_output"):
        call, output = payload["call_id"], payload["output"]
        if call in calls:
            text = output if isinstance(output, str) else msgspec.json.encode(output).decode()
            found[call] = found.get(call, LoggedCall())._replace(output=text)
