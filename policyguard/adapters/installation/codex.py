"""Codex's hooks: `~/.codex/hooks.json`, or a project's `.codex/hooks.json`."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from policyguard.adapters.installation.hook_entries import (
    add_entries,
    build_entries,
    remove_entries,
    require_plain,
)
from policyguard.adapters.installation.jsonc import find_extensions, parse
from policyguard.adapters.installation.settings import Installation

_TIMEOUT = 20
"""Seconds; a hook answers long before, if only to refuse."""

_EVENTS = {
    "SessionStart": True,
    "UserPromptSubmit": True,
    "PreToolUse": False,
    "PostToolUse": True,
    "Stop": True,
    "SubagentStop": True,
    "SessionEnd": True,
}
"""The events that are hooked, and whether their hooks only report."""


def _default_file() -> Path:
    return Path(os.environ.get("CODEX_HOME") or Path.home() / ".codex") / "hooks.json"


def _install(text: str, command: Callable[[bool], str], wait: int) -> str:
    hook = {"type": "command", "command": "", "timeout": _TIMEOUT}
    return add_entries(text, build_entries(_EVENTS, command, hook, wait))


def _uninstall(text: str) -> str:
    rest = remove_entries(text)
    return rest if rest == text or parse(rest) or find_extensions(rest) else ""


CODEX = Installation(
    "Codex",
    _default_file,
    _install,
    _uninstall,
    require_plain("Codex"),
    (
        "trust the hooks with `/hooks` in Codex: it skips those that were not reviewed, silently",
        "codex features disable unified_exec_tty   # what is typed into a shell fires no hook",
    ),
)
