"""Names of MCP tools: hosts say `mcp__fs__delete` for the tool `delete` of server `fs`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

MCP_PREFIX = "mcp__"


class ToolName(NamedTuple):
    """A tool's own name, its server, and the name that the host used, if that is another."""

    tool: str
    server: str
    host_tool: str


def parse_tool_name(name: str, server: str = "", own_name: str = "") -> ToolName:
    """Return a tool's name as calls, recordings and policies have it.

    `own_name` is the tool's name on its server, where the host knows it. Otherwise a full name is
    split, unless it lacks server or tool. The server that the host gives is the server's name; the
    names that Gemini CLI makes of it (`mcp_fs_delete`, `fs__delete`) are split where it is given.
    """
    if own_name and server:
        return ToolName(own_name, server, "" if own_name == name else name)
    if not name.startswith(MCP_PREFIX):
        for prefix in (f"mcp_{server}_", f"{server}__") if server else ():
            if name.startswith(prefix) and len(name) > len(prefix):
                return ToolName(name[len(prefix) :], server, name)
        return ToolName(name, server, "")
    prefix = join_tool_name("", server)
    if server and name.startswith(prefix):
        alias, tool = server, name[len(prefix) :]
    else:
        alias, _, tool = name[len(MCP_PREFIX) :].partition("__")
    if not (alias and tool):
        return ToolName(name, server, "")
    return ToolName(tool, server or alias, name)


def full_name_alias(tool: str, server: str, host_tool: str) -> str:
    """Return the full name that the host used, if it names another server; otherwise empty."""
    if not host_tool.startswith(MCP_PREFIX) or host_tool == join_tool_name(tool, server):
        return ""
    return host_tool


def join_tool_name(tool: str, server: str) -> str:
    """Return the full name of a server's tool."""
    return f"{MCP_PREFIX}{server}__{tool}"


def host_tool_names(tool: str, server: str) -> tuple[str, ...]:
    """Return the names that hosts use for a server's tool.

    The first is that of Claude Code and Codex; Gemini CLI uses the next two, Copilot CLI the last.
    """
    names = f"mcp_{server}_{tool}", f"{server}__{tool}", f"{server}-{tool}"
    return join_tool_name(tool, server), *names


def short_tool_glob(glob: str) -> str:
    """Return a glob for the own names of the tools that a glob for full names matches."""
    if not glob.startswith(MCP_PREFIX):
        return glob
    server, _, short = glob[len(MCP_PREFIX) :].partition("__")
    return short or ("*" if "*" in server or "?" in server else glob)


def own_name_globs(glob: str) -> tuple[str, ...]:
    """Return globs for all own names of tools that a glob may match on some server."""
    ends = {glob[i + len(mark) :] for mark in ("-", "__") for i in _find_all(glob, mark)}
    if glob.startswith("mcp_"):
        ends |= {glob[i + 1 :] for i in _find_all(glob, "_")}
    return glob, short_tool_glob(glob), *sorted(ends - {""})


def _find_all(text: str, part: str) -> Iterator[int]:
    at = text.find(part)
    while at >= 0:
        yield at
        at = text.find(part, at + 1)
