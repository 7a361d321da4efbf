"""The policy of the documentation: after reading from the web, nothing goes out."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from typing import Any

import pytest

from policyguard.adapters.mcp.guarded_server import GuardedServer
from policyguard.adapters.mcp.messages import CLIENT_INFO
from tests.adapters.mcp.test_calls import MODERN, Message, Peers

PAGE = Path(__file__).parents[3] / "docs" / "integrations" / "mcp.md"


@pytest.fixture
def peers(tmp_path: Path) -> Any:
    blocks: list[str] = re.findall(r"```yaml\n(.*?)```", PAGE.read_text(), re.S)
    (policy,) = (block for block in blocks if "name: web-and-mail" in block)
    made = Peers(policy.partition("name: web-and-mail\n")[2], tmp_path)
    yield made
    made.guard.close()


@pytest.mark.parametrize("era", ["sessions", "no sessions"])
def test_nothing_goes_out_after_reading_from_the_web(peers: Peers, era: str) -> None:
    """One rule over the servers and over any client; each client's run is its own."""
    names = ("web", "mail", "files")
    servers = {name: GuardedServer(name, peers.sessions, peers.limits) for name in names}

    async def story() -> None:
        exchanges: dict[tuple[str, str], Any] = {}

        async def call(client: str, server: str, tool: str) -> bool:
            """Return whether a call runs."""
            meta: Message = {**MODERN, CLIENT_INFO: {"name": client}}
            found = exchanges.get((client, server))
            peers.exchange = found or peers.connect(servers[server])
            if found is None and era == "sessions":
                exchanges[client, server] = peers.exchange
                params = {
                    "protocolVersion": "2025-11-25",
                    "clientInfo": {"name": client},
                    "capabilities": {},
                }
                await peers.request("initialize", params, {"result": {}})
            members = {} if era == "sessions" else {"_meta": meta}
            return "isError" not in await peers.call(tool, **members)

        assert await call("claude", "mail", "send")
        assert await call("claude", "files", "read")
        assert await call("claude", "mail", "list")
        assert await call("claude", "web", "fetch")
        assert not await call("claude", "mail", "send")
        assert await call("claude", "files", "write")
        assert await call("codex", "mail", "send")

    asyncio.run(story())
