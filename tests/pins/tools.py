"""Tools as servers list them, and policies that pin them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from policyguard import Guard
from policyguard.pins.lock import EMPTY_LOCK, PinnedServer, ToolsLock, format_lock

READ = {
    "name": "read_file",
    "title": "Read",
    "description": "Read a file of the project and return its text.",
    "inputSchema": {
        "type": "object",
        "properties": {
            "path": {"type": "string"},
            "mode": {"type": "string", "enum": ["r", "w"]},
            "options": {"type": "object", "properties": {"depth": {"type": "integer"}}},
        },
        "required": ["path"],
    },
    "outputSchema": {"type": "object", "properties": {"text": {"type": "string"}}},
    "annotations": {"readOnlyHint": True},
}
LIST = {"name": "list_dir", "inputSchema": {"type": "object"}}
PATTERNS = """
patterns:
  injection: {match: "(?i)ignore previous", examples: {match: [Ignore previous]}}
"""


def lock_of(**servers: list[Mapping[str, Any]]) -> ToolsLock:
    lock = EMPTY_LOCK
    for name, tools in servers.items():
        lock = lock.with_server(name, PinnedServer.of(name, "1", tools))
    return lock


def write_policy(folder: Path, pins: str = "{}", more: str = "") -> Path:
    """Write a policy and the lock it names; return the policy's file."""
    (folder / "tools.lock").write_text(format_lock(lock_of(fs=[READ, LIST])))
    file = folder / "policy.yaml"
    file.write_text(f"policyguard: 1\nname: p\npins: {pins}\n{more}")
    return file


def load(folder: Path, pins: str = "{}", more: str = "") -> Guard:
    return Guard.load(write_policy(folder, pins, more))
