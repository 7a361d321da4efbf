"""Claude Code's settings: `~/.claude/settings.json`, or a project's `.claude/settings.json`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from policyguard.adapters.installation.settings import (
    Installation,
    SettingsError,
    format_json,
    is_ours,
    parse_json,
)

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


def _install(text: str, command: Callable[[bool], str]) -> str:
    settings = parse_json(_uninstall(text))
    hooks = settings.setdefault("hooks", {})
    for event, only_reports in _EVENTS.items():
        hook: dict[str, Any] = {
            "type": "command",
            "command": command(only_reports),
            "timeout": _TIMEOUT,
        }
        if not only_reports:
            hook["onFailure"] = "block"  # else a call runs whose hook crashes or hangs
        entry: dict[str, Any] = {"hooks": [hook]}
        if "Tool" in event:
            entry = {"matcher": "*", **entry}
        _entries(hooks, event).append(entry)
    return format_json(settings)


def _uninstall(text: str) -> str:
    settings = parse_json(text)
    hooks = settings.get("hooks", {})
    if not isinstance(hooks, dict):
        raise SettingsError("`hooks` is not an object; mend the settings first")
    for event in [*hooks]:
        for entry in _entries(hooks, event):
            entry["hooks"] = [hook for hook in entry.get("hooks", ()) if not _is_our_hook(hook)]
        hooks[event] = [entry for entry in hooks[event] if entry["hooks"]]
        if not hooks[event]:
            del hooks[event]
    if "hooks" in settings and not hooks:
        del settings["hooks"]
    return format_json(settings)


def _entries(hooks: dict[str, Any], event: str) -> list[dict[str, Any]]:
    entries = hooks.setdefault(event, [])
    if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
        raise SettingsError(f"`hooks.{event}` is not a list of objects; mend the settings first")
    return entries


def _is_our_hook(hook: object) -> bool:
    return isinstance(hook, dict) and is_ours(hook.get("command"))


CLAUDE_CODE = Installation(
    "Claude Code",
    _default_file,
    _install,
    _uninstall,
    "start Claude Code anew; it needs 2.1.295 or later, where a hook that fails refuses the call",
)
