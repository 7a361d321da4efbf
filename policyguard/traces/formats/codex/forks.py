"""Forked Codex sessions and sub-agents, which begin with a copy of their parent's history."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from policyguard.traces.item import Skipped
from policyguard.traces.parsing.json_shape import as_object, as_string

_NumberedLine = tuple[int | None, object]

_UUID_7 = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[0-9a-f]{4}-[0-9a-f]{12}")
"""A version 7 UUID, which begins with its creation time."""


def drop_parent_history(
    file: str, lines: Iterator[_NumberedLine | Skipped]
) -> Iterator[_NumberedLine | Skipped]:
    """Yield the session's own lines, which begin with a turn not older than the session.

    If there is no such turn, yield all lines, and report that.
    """
    session = parent = ""
    copied: list[_NumberedLine] = []
    for entry in lines:
        if isinstance(entry, Skipped):
            yield entry
            continue
        kind, payload = _parse_line(entry[1])
        name = as_string(payload.get("id")) if kind == "session_meta" else ""
        if not session and name and _is_forked(payload):
            session = name
        elif session and not copied and name and name != session:
            parent = name
            copied.append(entry)
            continue
        elif copied and not _is_turn_of(session, payload):
            copied.append(entry)
            continue
        elif copied:
            session, copied = "", []
        yield entry
    if copied:
        reason = f"cannot tell where the history of `{parent}` ends: read as part of this session"
        yield Skipped(file, copied[0][0], reason)
        yield from copied


def _parse_line(line: object) -> tuple[str, dict[str, Any]]:
    record = as_object(line)
    return as_string(record.get("type")), as_object(record.get("payload"))


def _is_forked(payload: dict[str, Any]) -> bool:
    return bool(
        payload.get("forked_from_id")
        or payload.get("parent_thread_id")
        or as_object(payload.get("source")).get("subagent")
    )


def _is_turn_of(session: str, payload: dict[str, Any]) -> bool:
    turn = as_string(payload.get("turn_id"))
    return bool(_UUID_7.fullmatch(turn) and _UUID_7.fullmatch(session)) and turn >= session
