"""The clients of MCP servers: where each keeps its servers, and in which form."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

EntryPath = tuple[str, ...]
"""The path of a server's entry in the settings, ending in the server's name."""


class McpClient(NamedTuple):
    """A client. `sections` are the paths of its servers; `*` is any key.

    `address_keys` are those that may hold the address of a server over streamable HTTP, `sse_keys`
    that of one over SSE, where no `type` says otherwise.
    """

    title: str
    default_file: Callable[[], Path]
    sections: tuple[EntryPath, ...]
    next_step: str
    is_toml: bool = False
    address_keys: tuple[str, ...] = ("url",)
    sse_keys: tuple[str, ...] = ()

    @property
    def parse(self) -> Callable[[str], dict[str, Any]]:
        """Read the settings' text. Raises `SettingsError`."""
        if self.is_toml:
            from policyguard.adapters.installation.mcp import toml

            return toml.parse
        from policyguard.adapters.installation import jsonc

        return jsonc.parse

    @property
    def set_members(self) -> Callable[[str, Sequence[str], Mapping[str, Any]], str]:
        """Set members of one entry in the settings' text."""
        if self.is_toml:
            from policyguard.adapters.installation.mcp import toml

            return toml.set_members
        from policyguard.adapters.installation import jsonc

        return jsonc.set_members

    def find_entries(self, document: Mapping[str, Any]) -> Iterator[tuple[EntryPath, Any]]:
        """Yield the servers' entries, with their paths."""
        for section in self.sections:
            for path, servers in _descend(document, section, ()):
                if isinstance(servers, Mapping):
                    yield from (((*path, name), entry) for name, entry in servers.items())


def _descend(value: Any, section: EntryPath, path: EntryPath) -> Iterator[tuple[EntryPath, Any]]:
    if not section:
        yield path, value
    elif isinstance(value, Mapping):
        for key in value if section[0] == "*" else [section[0]] if section[0] in value else []:
            yield from _descend(value[key], section[1:], (*path, key))


def _application_folder() -> Path:
    """Return where desktop programs keep a user's settings."""
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Application Support"
    if sys.platform == "win32":
        return Path(os.environ.get("APPDATA") or Path.home() / "AppData" / "Roaming")
    return Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config")


MCP_CLIENTS: dict[str, McpClient] = {
    "claude-desktop": McpClient(
        "Claude Desktop",
        lambda: _application_folder() / "Claude" / "claude_desktop_config.json",
        (("mcpServers",),),
        "quit Claude Desktop and start it anew",
    ),
    "claude-code": McpClient(
        "Claude Code",
        lambda: Path.home() / ".claude.json",
        (("mcpServers",), ("projects", "*", "mcpServers")),
        "start Claude Code anew; a running one may write its settings over these",
    ),
    "cursor": McpClient(
        "Cursor",
        lambda: Path.home() / ".cursor" / "mcp.json",
        (("mcpServers",),),
        "start Cursor anew, and enable the servers again if it asks",
    ),
    "vscode": McpClient(
        "VS Code",
        lambda: _application_folder() / "Code" / "User" / "mcp.json",
        (("servers",),),
        "restart the servers with `MCP: List Servers`; for a workspace name --settings "
        ".vscode/mcp.json",
    ),
    "codex": McpClient(
        "Codex",
        lambda: Path(os.environ.get("CODEX_HOME") or Path.home() / ".codex") / "config.toml",
        (("mcp_servers",),),
        "start Codex anew",
        is_toml=True,
    ),
    "gemini-cli": McpClient(
        "Gemini CLI",
        lambda: Path.home() / ".gemini" / "settings.json",
        (("mcpServers",),),
        "start Gemini CLI anew",
        address_keys=("httpUrl", "url"),
        sse_keys=("url",),
    ),
}
