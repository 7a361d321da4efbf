"""Codex's TOML, changed in place by a library that keeps its form."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import tomlkit
from tomlkit.exceptions import TOMLKitError

from policyguard.adapters.installation.settings import SettingsError


def parse(text: str) -> dict[str, Any]:
    """Return the tables in a settings file. Raises `SettingsError`."""
    try:
        return tomlkit.parse(text).unwrap()
    except (TOMLKitError, RecursionError) as error:
        raise SettingsError(f"the settings are not TOML ({error}); mend them first") from None


def set_members(text: str, path: Sequence[str], changes: Mapping[str, Any]) -> str:
    """Return a text with values of the table at `path` set, which is there."""
    document = tomlkit.parse(text)
    table: Any = document
    for key in path:
        table = table[key]
    for key, value in changes.items():
        table[key] = value
    return tomlkit.dumps(document)
