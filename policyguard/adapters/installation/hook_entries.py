"""Entries for events in a host's JSON settings: `{"hooks": {EVENT: [entry, ...]}}`.

An entry is a hook, or names its hooks in a list of its own.
"""

from __future__ import annotations

import shlex
import shutil
from collections.abc import Callable, Mapping
from typing import Any

from policyguard.adapters.installation.settings import (
    SettingsError,
    format_json,
    is_ours,
    parse_json,
)

_COMMANDS = ("command", "bash")
"""The keys under which hosts name a hook's command."""

_SECONDS = 12
"""How long a hook may take, by a clock beside it; its own is shorter and the host's is longer."""

_FAILED = "policyguard: the hook failed, so the call is refused"


def block_on_failure(command: str, wait: int = 0) -> str:
    """Return a shell command that exits with 2 if a hook is missing, crashes or hangs.

    `wait` is for how many seconds it may wait for a person.
    Hosts let a call run if its hook exits with any other code or says nothing, or exceeds the
    host's own limit.
    """
    clock = shutil.which("timeout")  # not on macOS
    if clock is not None:
        command = f"{shlex.quote(clock)} -s KILL {_SECONDS + wait} {command}"
    return f"{command} || {{ echo {shlex.quote(_FAILED)} >&2; exit 2; }}"


def build_entries(
    events: Mapping[str, bool],
    command: Callable[[bool], str],
    hook: dict[str, Any],
    wait: int,
    second: int = 1,
) -> dict[str, dict[str, Any]]:
    """Return an entry for each event: `hook` with its command, which refuses if it fails.

    `events` says of each whether its hook only reports: then its failure stops nothing. `wait` as
    in `block_on_failure`; `second` is one in the unit of the host's `timeout`.
    """
    entries: dict[str, dict[str, Any]] = {}
    for event, only_reports in events.items():
        line = command(only_reports)
        shown = line if only_reports else block_on_failure(line, wait)
        matcher = {"matcher": ".*"} if "Tool" in event else {}
        timeout = hook["timeout"] + (0 if only_reports else wait * second)
        entries[event] = {**matcher, "hooks": [{**hook, "command": shown, "timeout": timeout}]}
    return entries


def add_entries(text: str, entries: dict[str, dict[str, Any]]) -> str:
    """Return settings with an entry of ours for each event. Raises `SettingsError`."""
    settings = parse_json(remove_entries(text))
    hooks = settings.setdefault("hooks", {})
    for event, entry in entries.items():
        _entries_of(hooks, event).append(entry)
    return format_json(settings)


def remove_entries(text: str) -> str:
    """Return settings without our entries; as they are if they have none.

    Raises `SettingsError`.
    """
    settings = parse_json(text)
    hooks = settings.get("hooks", {})
    if not isinstance(hooks, dict):
        raise SettingsError("`hooks` is not an object; mend the settings first")
    for event in [*hooks]:
        hooks[event] = [*filter(_keeps_others, _entries_of(hooks, event))]
        if not hooks[event]:
            del hooks[event]
    if "hooks" in settings and not hooks:
        del settings["hooks"]
    return text if settings == parse_json(text) else format_json(settings)


def _entries_of(hooks: dict[str, Any], event: str) -> list[dict[str, Any]]:
    entries = hooks.setdefault(event, [])
    if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
        raise SettingsError(f"`hooks.{event}` is not a list of objects; mend the settings first")
    return entries


def _keeps_others(entry: dict[str, Any]) -> bool:
    """Take our hooks out of an entry; returns whether others remain."""
    if not isinstance(entry.get("hooks"), list):
        return not _is_our_hook(entry)
    entry["hooks"] = [hook for hook in entry["hooks"] if not _is_our_hook(hook)]
    return bool(entry["hooks"])


def _is_our_hook(hook: object) -> bool:
    return isinstance(hook, dict) and any(is_ours(hook.get(key)) for key in _COMMANDS)
