"""Claude Code's settings: `~/.claude/settings.json`, or a project's `.claude/settings.json`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from policyguard.adapters.installation.hook_entries import (
    add_entries,
    block_on_failure,
    remove_entries,
    require_plain,
)
from policyguard.adapters.installation.settings import Installation

_TIMEOUT = 20
"""Seconds; a hook answers long before, if only to refuse."""

_EVENTS = {
    "SessionStart": True,
    "UserPromptSubmit": True,
    "PreToolUse": False,
    "PostToolUse": True,
    "PostToolUseFailure": True,
    "PostToolBatch": True,
    "Stop": True,
    "SubagentStop": True,
    "SessionEnd": True,
}
"""The events that are hooked, and whether their hooks only report."""


def _default_file() -> Path:
    return Path.home() / ".claude" / "settings.json"


def _install(text: str, command: Callable[[bool], str], wait: int) -> str:
    entries: dict[str, dict[str, Any]] = {}
    for event, only_reports in _EVENTS.items():
        line = command(only_reports)
        hook: dict[str, Any] = {
            "type": "command",
            "command": line if only_reports else block_on_failure(line, wait),
            "timeout": _TIMEOUT if only_reports else _TIMEOUT + wait,
        }
        if not only_reports:
            hook["onFailure"] = "block"  # of a shell that fails; before 2.1.295 it is ignored
        matcher = {"matcher": "*"} if "Tool" in event else {}
        entries[event] = {**matcher, "hooks": [hook]}
    return add_entries(text, entries)


CLAUDE_CODE = Installation(
    "Claude Code",
    _default_file,
    _install,
    remove_entries,
    require_plain("Claude Code", "byte order mark"),
    ("start Claude Code anew",),
)
