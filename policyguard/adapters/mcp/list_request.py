"""The proxy's own request for a server's tools, where pins need them and no client has asked."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Awaitable, Callable
from typing import Any

from policyguard.adapters.mcp.messages import PREFIX, Message, meta

MAX_PAGES = 100
_SECONDS = 10.0

AskServer = Callable[[Message], Awaitable[Message]]
"""Sends a request of the proxy's own to the server; returns the response."""

OnPage = Callable[[dict[str, Any], bool], object]
"""Takes in a page of the list; the second argument is whether it is the first one."""


class ListRequest:
    """Asks for a server's tools once, whatever number of calls wait for them."""

    def __init__(self, on_page: OnPage) -> None:
        self._on_page = on_page
        self._running: asyncio.Task[None] | None = None

    async def run(self, ask: AskServer, call: dict[str, Any]) -> None:
        """Read the list to its end, on behalf of the client whose `call` (its parameters) waits.

        Raises what `ask` raises, and `TimeoutError`.
        """
        if self._running is None or self._running.done():
            self._running = asyncio.create_task(self._read(ask, call))
        await asyncio.shield(self._running)

    async def _read(self, ask: AskServer, call: dict[str, Any]) -> None:
        own = {key: value for key, value in meta(call).items() if key.startswith(PREFIX)}
        params: dict[str, Any] = {"_meta": own} if own else {}
        async with asyncio.timeout(_SECONDS):
            for page in range(MAX_PAGES):
                id_ = f"policyguard-{secrets.token_hex(8)}"
                request = {"jsonrpc": "2.0", "id": id_, "method": "tools/list", "params": params}
                result = (await ask(request)).get("result")
                if not isinstance(result, dict):
                    return
                self._on_page(result, page == 0)
                if not result.get("nextCursor"):
                    return
                params = {**params, "cursor": result["nextCursor"]}
