"""A forked Codex session, or a sub-agent's, begins with its parent's history told once more."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from policyguard.traces.item import Skipped
from policyguard.traces.parsing.json_shape import as_object, as_string

_NumberedLine = tuple[int | None, object]

_UUID_7 = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[0-9a-f]{4}-[0-9a-f]{12}")
"""A UUID of version 7: it begins with the time when it was made."""


def drop_parent_history(
    file: str, lines: Iterator[_NumberedLine | Skipped]
) -> Iterator[_NumberedLine | Skipped]:
    """The lines that are the session's own, which begin with a turn no older than itself.

    Where no such turn comes, nothing says where the history ends: then all lines are its own,
    and that is reported.
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
        reason = f"nothing says where the history of `{parent}` ends: it is read as the session's"
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
