"""Gemini CLI's settings: `~/.gemini/settings.json`, or a project's `.gemini/settings.json`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from policyguard.adapters.installation.hook_entries import (
    add_entries,
    build_entries,
    remove_entries,
    require_plain,
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


def _install(text: str, command: Callable[[bool], str], wait: int) -> str:
    hook = {"type": "command", "name": "policyguard", "command": "", "timeout": _TIMEOUT}
    return add_entries(text, build_entries(_EVENTS, command, hook, wait, second=1000))


GEMINI_CLI = Installation(
    "Gemini CLI",
    _default_file,
    _install,
    remove_entries,
    require_plain("Gemini CLI", "comment"),
    ("start Gemini CLI anew",),
)
