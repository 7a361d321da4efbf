"""What installing a host's hooks changes: one settings file, from one text to another."""

from __future__ import annotations

import difflib
import json
import os
import shlex
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from policyguard.adapters.client import hook_command
from policyguard.model.errors import PolicyguardError
from policyguard.store.paths import absolute_store

_MARKS = ("policyguard-hook", "hook_command.py")
"""What the commands of our entries contain, by which they are found again."""


class SettingsError(PolicyguardError):
    """A host's settings cannot be read or changed: `str()` of it says what to do."""


class Installation(NamedTuple):
    """How the hooks of one host are installed.

    `default_file` is where the host reads its user's settings. `install` takes the settings' text
    ("" if there is no file), the command of an entry, by whether it only reports, and for how many
    seconds a call may wait for a person; `uninstall` takes the text; without any the file is
    removed. `check` takes the text of a file that is there: does the host read it? The three raise
    `SettingsError`. `next_steps` are what the user still has to do.
    """

    title: str
    default_file: Callable[[], Path]
    install: Callable[[str, Callable[[bool], str], int], str]
    uninstall: Callable[[str], str]
    check: Callable[[str], None]
    next_steps: tuple[str, ...]


def hook_command_line(
    host: str, policies: list[str], store: str | Path, socket: Path, *, report: bool, wait: int = 0
) -> str:
    """Return the command that a host runs, with absolute paths.

    With `wait` a call waits for so many seconds for a person.
    """
    named = resolve_policies(policies)
    parts = [sys.executable, "-I", "-S", str(Path(hook_command.__file__).resolve()), host]
    parts += [part for policy in named for part in ("--policy", policy)]
    parts += ["--store", absolute_store(store), "--socket", str(socket)]
    if report:
        parts.append("--report")
    elif wait:
        parts += ["--wait", str(wait)]
    return shlex.join(parts)


def resolve_policies(policies: list[str]) -> list[str]:
    """Return the policies with absolute paths; packs keep their names."""
    return [str(Path(one).resolve()) if Path(one).exists() else one for one in policies]


def is_ours(command: object) -> bool:
    """Whether an entry's command is one that `hook install` wrote."""
    return isinstance(command, str) and any(mark in command for mark in _MARKS)


def format_json(document: dict[str, Any]) -> str:
    """Return settings as text."""
    return json.dumps(document, indent=2, ensure_ascii=False) + "\n"


def read_settings(file: Path) -> str:
    """Return the text of a settings file, "" if there is none. Raises `SettingsError`."""
    try:
        with file.open(encoding="utf-8", newline="") as settings:  # line breaks stay as they are
            return settings.read()
    except FileNotFoundError:
        return ""
    except (OSError, UnicodeDecodeError) as error:
        raise SettingsError(f"{file}: cannot be read: {error}") from None


def show_change(file: Path, before: str, after: str) -> str:
    """Return a unified diff of a settings file, without the lines around: some hold secrets."""
    lines = difflib.unified_diff(
        before.splitlines(keepends=True),
        after.splitlines(keepends=True),
        str(file),
        str(file),
        n=0,
    )
    return "".join(lines)


def write_settings(file: Path, text: str, *, is_kept: bool = False) -> None:
    """Replace a settings file at once, and keep its mode; remove one that has no text.

    With `is_kept` it stays, empty.

    Raises `SettingsError`.
    """
    target = file.resolve()  # a link stays one
    try:
        if not text and not is_kept:
            target.unlink(missing_ok=True)
            return
        target.parent.mkdir(parents=True, exist_ok=True)
        mode = target.stat().st_mode & 0o777 if target.exists() else 0o600
        descriptor, name = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
        with os.fdopen(descriptor, "w", encoding="utf-8", newline="") as temporary:
            temporary.write(text)
        Path(name).chmod(mode)
        Path(name).replace(target)
    except OSError as error:
        raise SettingsError(f"{file}: cannot be written: {error}") from None
