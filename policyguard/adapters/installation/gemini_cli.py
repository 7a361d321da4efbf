"""Gemini CLI's settings: `~/.gemini/settings.json`, or a project's `.gemini/settings.json`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from policyguard.adapters.installation.hook_entries import (
    add_entries,
    block_on_failure,
    remove_entries,
)
from policyguard.adapters.installation.settings import Installation

_TIMEOUT = 20_000
"""Milliseconds; a hook answers long before, if only to refuse."""

_EVENTS = {
    "SessionStart": True,
    "BeforeAgent": True,
    "BeforeTool": False,
    "AfterTool": True,
    "AfterAgent": True,
    "SessionEnd": True,
}
"""The events that are hooked, and whether their hooks only report."""


def _default_file() -> Path:
    return Path.home() / ".gemini" / "settings.json"


def _install(text: str, command: Callable[[bool], str]) -> str:
    entries: dict[str, dict[str, Any]] = {}
    for event, only_reports in _EVENTS.items():
        line = command(only_reports)
        hook = {
            "type": "command",
            "name": "policyguard",
            "command": line if only_reports else block_on_failure(line),
            "timeout": _TIMEOUT,
        }
        matcher = {"matcher": ".*"} if "Tool" in event else {}
        entries[event] = {**matcher, "hooks": [hook]}
    return add_entries(text, entries)


GEMINI_CLI = Installation(
    "Gemini CLI", _default_file, _install, remove_entries, ("start Gemini CLI anew",)
)
