"""Copilot CLI's hooks: `~/.copilot/hooks/`, or a repository's `.github/hooks/`."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from policyguard.adapters.installation.hook_entries import (
    add_entries,
    block_on_failure,
    remove_entries,
    require_plain,
)
from policyguard.adapters.installation.jsonc import find_extensions, has_value, parse
from policyguard.adapters.installation.jsonc_edits import append_member
from policyguard.adapters.installation.settings import Installation, format_json

_TIMEOUT = 20
"""Seconds; a hook answers long before, if only to refuse."""

_VERSION = {"version": 1}

_EVENTS = {
    "sessionStart": True,
    "userPromptSubmitted": True,
    "preToolUse": False,
    "postToolUse": True,
    "postToolUseFailure": True,
    "agentStop": True,
    "sessionEnd": True,
}
"""The events that are hooked, and whether their hooks only report."""


def _default_file() -> Path:
    home = os.environ.get("COPILOT_HOME") or Path.home() / ".copilot"
    return Path(home) / "hooks" / "policyguard.json"


def _install(text: str, command: Callable[[bool], str], wait: int) -> str:
    entries: dict[str, dict[str, Any]] = {}
    for event, only_reports in _EVENTS.items():
        line = command(only_reports)
        entries[event] = {
            "type": "command",
            "bash": line if only_reports else block_on_failure(line, wait),
            "timeoutSec": _TIMEOUT if only_reports else _TIMEOUT + wait,
        }
    if not has_value(text):
        text += format_json(_VERSION)
    elif "version" not in parse(text):
        text = append_member(text, _VERSION)
    return add_entries(text, entries)


def _uninstall(text: str) -> str:
    rest = remove_entries(text)
    is_kept = rest == text or parse(rest) not in ({}, _VERSION) or find_extensions(rest)
    return rest if is_kept else ""


COPILOT_CLI = Installation(
    "Copilot CLI",
    _default_file,
    _install,
    _uninstall,
    require_plain("Copilot CLI"),
    ("start Copilot CLI anew",),
)
