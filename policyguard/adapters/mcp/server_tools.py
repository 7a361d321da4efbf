"""Ask a server for all its tools, as it defines them on the wire."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from typing import Any

import mcp_types as types
from mcp import Client, MCPError, StdioServerParameters
from mcp.client.session import MessageHandlerFnT
from pydantic import ValidationError

from policyguard.model.errors import PolicyguardError
from policyguard.pins.lock import MAX_LOCK_BYTES, MAX_SERVER_TOOLS, PinnedServer

MAX_PAGES = 1000
"""The most pages of a list that are read."""

logging.getLogger("mcp").addHandler(logging.NullHandler())  # else it prints tracebacks


class _Page(types.Result):
    """A page of a list. Tools as they are: the SDK's type would drop members it does not know."""

    tools: list[dict[str, Any]]
    next_cursor: str | None = None


class ServerToolsError(PolicyguardError):
    """A server that cannot be asked, or whose list has no end: `str()` says what to do."""


def read_server_tools(target: str | Sequence[str], timeout: float) -> PinnedServer:
    """Start a server by its command, or reach it at its address, and read all its tools.

    `timeout` is seconds, for all of it. Raises `ServerToolsError`, and `LockError` for tools that
    cannot be pinned.
    """
    try:
        return asyncio.run(_read_within(target, timeout))
    except TimeoutError:
        raise ServerToolsError(f"the server did not list its tools within {timeout:g} s") from None
    except (MCPError, OSError, ValidationError, ExceptionGroup) as error:
        raise ServerToolsError(_explain(error)) from None


async def _read_within(target: str | Sequence[str], timeout: float) -> PinnedServer:
    async with asyncio.timeout(timeout):
        return await _read(target)


async def _read(target: str | Sequence[str]) -> PinnedServer:
    server = (
        target
        if isinstance(target, str)
        else StdioServerParameters(command=target[0], args=[*target[1:]])
    )
    unreadable: asyncio.Future[PinnedServer] = asyncio.get_running_loop().create_future()

    async def note(message: object) -> None:
        # The SDK drops what it cannot read, and would wait for the answer that this may be.
        if isinstance(message, ValidationError) and not unreadable.done():
            first = message.errors(include_url=False)[0]
            if first["type"] == "json_invalid" and '"jsonrpc"' in str(first["input"]):
                text = f"the server's answer cannot be read: {first['ctx']['error']}"
                unreadable.set_exception(ServerToolsError(text))

    asking = asyncio.ensure_future(_ask(server, note))
    try:
        await asyncio.wait({asking, unreadable}, return_when=asyncio.FIRST_COMPLETED)
        return await (asking if asking.done() else unreadable)
    finally:
        asking.cancel()
        await asyncio.gather(asking, return_exceptions=True)
        unreadable.cancel()


async def _ask(server: str | StdioServerParameters, note: MessageHandlerFnT) -> PinnedServer:
    # Some servers list tools only to clients that can do these.
    client = Client(
        server,
        message_handler=note,
        sampling_callback=_decline,
        elicitation_callback=_decline,
        list_roots_callback=_decline,
        cache=None,
    )
    async with client:
        tools = await _list_all(client)
        info = client.server_info
        name, version = (info.name, info.version) if info is not None else ("", "")
        return PinnedServer.of(name, version, tools)


async def _list_all(client: Client) -> list[dict[str, Any]]:
    tools: list[dict[str, Any]] = []
    cursors: set[str] = set()
    cursor: str | None = None
    size = 0
    for _ in range(MAX_PAGES):
        params = types.PaginatedRequestParams(cursor=cursor)
        page = await client.session.send_request(types.ListToolsRequest(params=params), _Page)
        tools += page.tools
        size += len(str(page.tools))
        if len(tools) > MAX_SERVER_TOOLS or size > MAX_LOCK_BYTES:
            raise ServerToolsError(
                f"the server lists more than can be pinned: {MAX_SERVER_TOOLS:,} tools, "
                f"{MAX_LOCK_BYTES:,} characters"
            )
        cursor = page.next_cursor
        if not cursor:
            return tools
        if cursor in cursors:
            break
        cursors.add(cursor)
    raise ServerToolsError("the server's list of tools does not end: its pages repeat")


async def _decline(context: object, params: object = None) -> types.ErrorData:
    return types.ErrorData(code=-32601, message="only the list of tools is read here")


def _explain(error: Exception) -> str:
    """Return in one line why a server cannot be asked."""
    while isinstance(error, ExceptionGroup):
        error = error.exceptions[0]
    if isinstance(error, PolicyguardError):
        return str(error)
    if isinstance(error, ValidationError):
        first = error.errors(include_url=False, include_input=False)[0]
        place = ".".join(map(str, first["loc"]))
        return f"the server's answer does not follow the protocol: `{place}`: {first['msg']}"
    return f"the server cannot be asked for its tools: {error}"
