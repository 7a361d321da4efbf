"""Entries for events in a host's JSON settings: `{"hooks": {EVENT: [entry, ...]}}`.

An entry is a hook, or names its hooks in a list of its own.
"""

from __future__ import annotations

import shlex
import shutil
from collections.abc import Callable, Mapping
from typing import Any

from policyguard.adapters.installation.jsonc import find_extensions, has_value, parse
from policyguard.adapters.installation.jsonc_edits import append_item, has_comments, remove_at
from policyguard.adapters.installation.settings import SettingsError, format_json, is_ours

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


def require_plain(title: str, *accepted: str) -> Callable[[str], None]:
    """Return a check of settings: raises `SettingsError` for what a host does not read.

    Hosts use no hook of a file that has something else than JSON in it, and most say nothing.
    `accepted` are the names of those extensions of JSON that the host reads.
    """

    def check(text: str) -> None:
        parse(text)
        for found in find_extensions(text):
            if found.name not in accepted:
                raise SettingsError(
                    f"line {found.line} has a {found.name}, for which {title} would use no hook "
                    "of the file; remove it first"
                )

    return check


def add_entries(text: str, entries: Mapping[str, Any]) -> str:
    """Return settings with an entry of ours for each event; all else keeps its form.

    Raises `SettingsError`.
    """
    text = remove_entries(text)
    if not has_value(text):
        return text + format_json({"hooks": {event: [entry] for event, entry in entries.items()}})
    for event, entry in entries.items():
        text = append_item(text, ("hooks", event), entry)
    return text


def remove_entries(text: str) -> str:
    """Return settings without our entries; all else keeps its form.

    Raises `SettingsError`.
    """
    before = _hooks_of_others(parse(text))
    while (path := _find_ours(text)) is not None:
        is_inner = len(path) > 3  # an entry without `hooks` would be one of others
        text = remove_at(text, path, is_alone=is_inner)
    if _hooks_of_others(parse(text)) != before:
        raise SettingsError(_DUPLICATES)
    return text


_DUPLICATES = "a key of `hooks` is there twice, or `hooks` itself; mend the settings first"


def _find_ours(text: str) -> list[str | int] | None:
    """Return the path of an entry of ours, or of our hook in an entry that has others."""
    for event, entries in _events_of(parse(text)).items():
        for at, entry in enumerate(entries):
            if _is_our_hook(entry):
                return ["hooks", event, at]
            inner = entry.get("hooks")
            ours = [*map(_is_our_hook, inner)] if isinstance(inner, list) else []
            if any(ours):
                path: list[str | int] = ["hooks", event, at]
                is_whole = all(ours) and not has_comments(text, path)
                return path if is_whole else [*path, "hooks", ours.index(True)]
    return None


def _events_of(settings: Mapping[str, Any]) -> dict[str, list[dict[str, Any]]]:
    hooks = settings.get("hooks", {})
    if not isinstance(hooks, dict):
        raise SettingsError("`hooks` is not an object; mend the settings first")
    for event, entries in hooks.items():
        if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
            raise SettingsError(
                f"`hooks.{event}` is not a list of objects; mend the settings first"
            )
    return hooks


def _hooks_of_others(settings: dict[str, Any]) -> dict[str, Any]:
    """Return settings without our hooks, and without what holds no hook."""
    events: dict[str, list[dict[str, Any]]] = {}
    for event, entries in _events_of(settings).items():
        for entry in entries:
            inner = entry.get("hooks")
            if isinstance(inner, list):
                kept = [hook for hook in inner if not _is_our_hook(hook)]
                events.setdefault(event, []).extend([{**entry, "hooks": kept}] if kept else [])
            elif not _is_our_hook(entry):
                events.setdefault(event, []).append(entry)
    return {**settings, "hooks": {event: entries for event, entries in events.items() if entries}}


def _is_our_hook(hook: object) -> bool:
    return isinstance(hook, dict) and any(is_ours(hook.get(key)) for key in _COMMANDS)
