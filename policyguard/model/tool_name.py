"""Names of MCP tools: hosts say `mcp__fs__delete` for the tool `delete` of server `fs`."""

from __future__ import annotations

MCP_PREFIX = "mcp__"


def split_tool_name(tool: str, server: str = "") -> tuple[str, str]:
    """Return a tool's own name and its server.

    A name without server or tool stays whole, as does one with another server than the given.
    """
    if not tool.startswith(MCP_PREFIX):
        return tool, server
    if server:
        return tool.removeprefix(join_tool_name("", server)) or tool, server
    named, _, short = tool[len(MCP_PREFIX) :].partition("__")
    return (short, named) if named and short else (tool, "")


def join_tool_name(tool: str, server: str) -> str:
    """Return the name of a server's tool as hosts say it."""
    return f"{MCP_PREFIX}{server}__{tool}"


def short_tool_glob(glob: str) -> str:
    """Return a glob for the own names of the tools that a glob for full names matches."""
    if not glob.startswith(MCP_PREFIX):
        return glob
    server, _, short = glob[len(MCP_PREFIX) :].partition("__")
    return short or ("*" if "*" in server or "?" in server else glob)
