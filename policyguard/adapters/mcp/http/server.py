"""The process of the proxy over HTTP."""

from __future__ import annotations

import asyncio
import re
import signal
from collections.abc import Callable, Sequence
from pathlib import Path
from urllib.parse import urlsplit

import uvicorn

from policyguard.adapters.mcp.call_sessions import LocalSessions
from policyguard.adapters.mcp.guarded_server import GuardedServer
from policyguard.adapters.mcp.http.proxy import HttpProxy
from policyguard.adapters.mcp.runs import Runs
from policyguard.adapters.mcp.settings import ProxyLimits
from policyguard.guard.guard import Guard
from policyguard.model.errors import PolicyguardError

LOOPBACK = ("127.0.0.1", "localhost", "::1")
_HOSTS = frozenset({"127.0.0.1", "localhost", "[::1]"})
_MAX_REQUESTS = 2048
"""Requests at a time; more are refused with status 503."""

_NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9.-]|_(?!_)){0,63}")


class UpstreamError(PolicyguardError):
    """An upstream that cannot be served: `str()` of it says what to do."""


def read_upstreams(given: Sequence[str]) -> dict[str, str]:
    """Return the addresses of servers by name, each given as `NAME=URL`. Raises `UpstreamError`."""
    upstreams: dict[str, str] = {}
    for one in given:
        name, found, url = one.partition("=")
        if not found or not _NAME.fullmatch(name):
            raise UpstreamError(
                f"`{one}` is not NAME=URL: a name has letters, digits, `.`, `-` and single `_`"
            )
        if urlsplit(url).scheme not in ("http", "https") or not urlsplit(url).hostname:
            raise UpstreamError(f"`{url}` is not the http address of a server")
        if name in upstreams:
            raise UpstreamError(f"two servers are called `{name}`")
        upstreams[name] = url
    return upstreams


def run_http(
    policies: Sequence[str],
    store: str | Path | None,
    upstreams: dict[str, str],
    limits: ProxyLimits,
    *,
    host: str,
    port: int,
    session: str = "",
    on_start: Callable[[str, int], None] = lambda _, __: None,
) -> None:
    """Serve servers behind a policy until a signal says to end.

    `on_start` is called with the policy's name and the port. Raises what `Guard.load` raises.
    """
    if host not in LOOPBACK:
        raise UpstreamError(f"`{host}` is not a loopback address: use one of {LOOPBACK}")
    with Guard.load([*policies], store=store) as guard:
        sessions = LocalSessions(guard)
        served = {
            name: (GuardedServer(name, sessions, limits), url) for name, url in upstreams.items()
        }
        runs = Runs(sessions, fixed=session, idle=limits.idle)
        proxy = HttpProxy(served, runs, _HOSTS)
        config = uvicorn.Config(
            proxy,
            host=host,
            port=port,
            log_level="warning",
            access_log=False,
            lifespan="off",
            ws="none",
            server_header=False,
            date_header=False,
            limit_concurrency=_MAX_REQUESTS,
            timeout_keep_alive=3600,
            timeout_graceful_shutdown=2,
        )
        server = _Server(config, lambda bound: on_start(guard.policy, bound))
        for signal_ in (signal.SIGTERM, signal.SIGINT):
            # The server raises it again when it has ended: the guard is still to be closed then.
            signal.signal(signal_, lambda _, __: None)
        with asyncio.Runner(loop_factory=config.get_loop_factory()) as runner:
            runner.run(_serve(server, proxy))


async def _serve(server: uvicorn.Server, proxy: HttpProxy) -> None:
    try:
        await server.serve()
    finally:
        await proxy.close()


class _Server(uvicorn.Server):
    """A server that says on which port it listens."""

    def __init__(self, config: uvicorn.Config, on_start: Callable[[int], None]) -> None:
        super().__init__(config)
        self._on_start = on_start

    async def startup(self, sockets: list[object] | None = None) -> None:  # type: ignore[override]  # sockets are none
        await super().startup()
        if self.servers:
            self._on_start(self.servers[0].sockets[0].getsockname()[1])
