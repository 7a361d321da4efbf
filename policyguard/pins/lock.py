"""`tools.lock`: the tools of servers as they were reviewed. JSON, sorted, fit to be committed.

It keeps each definition, so that a change can be put in words, and the hash of each part, by which
tools are judged. A lock whose hashes are not those of its definitions is refused.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from policyguard.model.errors import PolicyguardError
from policyguard.pins.definition import DefinitionError, hash_parts, read_parts

MAX_LOCK_BYTES = 32 * 1024 * 1024
"""The largest lock that is read."""

MAX_SERVER_TOOLS = 10_000
"""The most tools of one server."""

SCHEMA_ID = "urn:policyguard:schema:tools-lock:1"


class LockError(PolicyguardError):
    """A lock that cannot be read: `str()` says what is wrong with it."""


class PinnedTool(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A tool: its parts by MCP's names, and the SHA-256 of each in hex."""

    definition: dict[str, Any]
    sha256: dict[str, str]

    @classmethod
    def of(cls, tool: Mapping[str, Any]) -> PinnedTool:
        """Return a tool as it is pinned. Raises `DefinitionError`."""
        parts = read_parts(tool)
        return cls(parts, hash_parts(parts))


class PinnedServer(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A server, as it calls itself, and its tools by name."""

    name: str
    version: str
    tools: dict[str, PinnedTool]

    @classmethod
    def of(cls, name: str, version: str, tools: Iterable[Mapping[str, Any]]) -> PinnedServer:
        """Return a server as it is pinned. Raises `LockError` for tools that cannot be."""
        pinned: dict[str, PinnedTool] = {}
        for tool in tools:
            own_name = tool.get("name")
            if not isinstance(own_name, str) or not own_name:
                raise LockError("the server lists a tool without a name")
            if own_name in pinned:
                raise LockError(f"the server lists the tool {own_name!r} twice")
            if len(pinned) >= MAX_SERVER_TOOLS:
                raise LockError(f"the server lists more than {MAX_SERVER_TOOLS:,} tools")
            try:
                pinned[own_name] = PinnedTool.of(tool)
            except DefinitionError as error:
                raise LockError(f"the tool {own_name!r} cannot be pinned: {error}") from None
        return cls(name, version, pinned)


class ToolsLock(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The pinned servers, by the names that the policy and its host have for them."""

    policyguard: int
    servers: dict[str, PinnedServer]
    schema: str = msgspec.field(name="$schema", default=SCHEMA_ID)

    def with_server(self, name: str, server: PinnedServer) -> ToolsLock:
        """Return the lock with a server added or replaced."""
        return ToolsLock(self.policyguard, {**self.servers, name: server})

    def hashes(self) -> dict[str, dict[str, dict[str, str]]]:
        """Return the hash of each part, by server and tool."""
        return {
            name: {tool: pinned.sha256 for tool, pinned in server.tools.items()}
            for name, server in self.servers.items()
        }


EMPTY_LOCK = ToolsLock(1, {})


def read_lock(data: bytes) -> ToolsLock:
    """Read a lock. Raises `LockError`."""
    if len(data) > MAX_LOCK_BYTES:
        raise LockError(f"it has more than {MAX_LOCK_BYTES:,} bytes")
    try:
        lock = msgspec.convert(json.loads(data), ToolsLock)  # msgspec's reader rounds large numbers
    except (msgspec.ValidationError, ValueError) as error:
        raise LockError(f"it is not a lock of tools: {error}") from None
    except RecursionError:
        raise LockError("it is nested too deep") from None
    if lock.policyguard != 1:
        raise LockError(f"it has version {lock.policyguard}; this program reads version 1")
    for name, server in lock.servers.items():
        for tool, pinned in server.tools.items():
            try:
                is_intact = hash_parts(read_parts(pinned.definition)) == pinned.sha256
            except DefinitionError as error:
                raise LockError(f"tool {tool!r} of {name!r}: {error}") from None
            if not is_intact:
                raise LockError(
                    f"tool {tool!r} of {name!r} does not have the hashes that stand beside it: "
                    "restore the file, or remove it and pin its servers anew"
                )
    return lock


def format_lock(lock: ToolsLock) -> str:
    """Return a lock as text: keys sorted, one value a line, so that changes are easy to review."""
    document = msgspec.to_builtins(lock)
    return json.dumps(document, indent=2, sort_keys=True) + "\n"
