"""OpenCode's plugin: `~/.config/opencode/plugins/`, or a project's `.opencode/plugins/`."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from importlib import resources
from pathlib import Path

from policyguard.adapters.installation.settings import Installation, SettingsError

_SECONDS = 12
"""How long a hook may take, beside what it waits for a person."""

_OURS = "// policyguard's plugin"


def _default_file() -> Path:
    configuration = os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config"
    return Path(configuration) / "opencode" / "plugins" / "policyguard.js"


def _install(text: str, command: Callable[[bool], str], wait: int) -> str:
    if _uninstall(text):
        raise SettingsError("the file is not policyguard's plugin; name another, or remove it")
    plugin = resources.files(__package__).joinpath("opencode_plugin.js").read_text("utf-8")
    for name, only_reports in (("check", False), ("report", True)):
        plugin = plugin.replace(f'"{{{{{name}}}}}"', json.dumps(command(only_reports)))
    return plugin.replace("{{milliseconds}}", str(1000 * (_SECONDS + wait)))


def _uninstall(text: str) -> str:
    return "" if text.startswith(_OURS) else text


OPENCODE = Installation(
    "OpenCode", _default_file, _install, _uninstall, lambda _: None, ("start OpenCode anew",)
)
