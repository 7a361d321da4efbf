"""A server whose tools are what a file says: `python pinned_server.py FILE`.

The file has lists of tools; each `tools/list` takes the next one, and the last stays.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import anyio
import mcp_types as types
from mcp.server import Server
from mcp.server.stdio import stdio_server

LISTS: list[list[dict[str, Any]]] = json.loads(Path(sys.argv[1]).read_text())


async def list_tools(_: Any, params: types.PaginatedRequestParams | None) -> types.ListToolsResult:
    """Return a page of one tool of the list that is next."""
    at = int(params.cursor) if params is not None and params.cursor else 0
    tools = LISTS[0]
    is_last = at + 1 >= len(tools)
    if is_last and len(LISTS) > 1:
        LISTS.pop(0)
    page = [types.Tool.model_validate(tool) for tool in tools[at : at + 1]]
    return types.ListToolsResult(tools=page, next_cursor=None if is_last else str(at + 1))


async def call_tool(_: Any, params: types.CallToolRequestParams) -> types.CallToolResult:
    """Return the tool's name."""
    return types.CallToolResult(content=[types.TextContent(text=params.name)])


async def main() -> None:
    server = Server("pinned", version="1", on_list_tools=list_tools, on_call_tool=call_tool)
    async with stdio_server() as (read, write):
        await server.run(read, write, server.create_initialization_options())


anyio.run(main)
