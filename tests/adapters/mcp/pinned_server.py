"""A server whose tools are what a file says: `python pinned_server.py FILE`.

The file has lists of tools; each `tools/list` takes the next one, and the last stays. It has no
SDK, for that takes a second to import.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

LISTS: list[list[dict[str, Any]]] = json.loads(Path(sys.argv[1]).read_text())
IDENTITY = {
    "capabilities": {"tools": {}},
    "serverInfo": {"name": "pinned", "version": "1"},
}
COMPLETE = {"resultType": "complete", "ttlMs": 0, "cacheScope": "private"}
"""What later protocols want of a result, and earlier ones pass over."""


def list_tools(params: dict[str, Any]) -> dict[str, Any]:
    """Return a page of one tool of the list that is next."""
    at = int(params.get("cursor") or 0)
    tools = LISTS[0]
    is_last = at + 1 >= len(tools)
    if is_last and len(LISTS) > 1:
        LISTS.pop(0)
    return {"tools": tools[at : at + 1], **({} if is_last else {"nextCursor": str(at + 1)})}


def answer(method: str, params: dict[str, Any]) -> dict[str, Any] | None:
    if method == "initialize":
        return {"protocolVersion": params["protocolVersion"], **IDENTITY}
    if method == "server/discover":
        return {"supportedVersions": ["2026-07-28"], **IDENTITY}
    if method == "tools/list":
        return list_tools(params)
    if method == "tools/call":
        return {"content": [{"type": "text", "text": params["name"]}]}
    return None


for line in sys.stdin:
    message = json.loads(line)
    if "id" not in message or "method" not in message:
        continue
    result = answer(message["method"], message.get("params") or {})
    found = {"error": {"code": -32601, "message": "no such method"}}
    if result is not None:
        found = {"result": {**COMPLETE, **result}}
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", "id": message["id"], **found}) + "\n")
    sys.stdout.flush()
