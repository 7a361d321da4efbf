"""The proxy over streamable HTTP: a reverse proxy for several servers, each at `/NAME`.

Headers, session ids, event ids and both eras of the protocol pass as they are; the servers' own
sessions are the clients'.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections import OrderedDict
from collections.abc import AsyncIterator, Mapping

import httpx2

from policyguard.adapters.mcp.clients import Client
from policyguard.adapters.mcp.exchange import Exchange
from policyguard.adapters.mcp.guarded_server import GuardedServer
from policyguard.adapters.mcp.http.authorization import (
    MAX_METADATA,
    WELL_KNOWN,
    MetadataError,
    list_metadata_urls,
    resource_of,
    rewrite_metadata,
)
from policyguard.adapters.mcp.http.reply import Headers, Reply, Send
from policyguard.adapters.mcp.http.request import (
    PROTOCOL_HEADER,
    RUN_HEADER,
    SESSION_HEADER,
    ProxiedRequest,
    Scope,
)
from policyguard.adapters.mcp.runs import Runs
from policyguard.adapters.request_body import BodyError, Receive

_METHODS = ("POST", "GET", "DELETE")
_MAX_SESSIONS = 4096
"""Sessions of clients that are remembered; the least recently used are forgotten first."""

_MAX_UNCONFIRMED = 256
"""Sessions that a client names, and that the server has not answered in since the proxy began."""

_CONNECT_SECONDS = 10.0
_METADATA_SECONDS = 10.0

_HOST = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[^:\[\]]+)(?::[0-9]{1,5})?")


_METADATA: Headers = [(b"content-type", b"application/json"), (b"cache-control", b"no-store")]


_Exchanges = OrderedDict[tuple[str, bytes], Exchange]


class HttpProxy:
    """The ASGI application. `upstreams` are the servers with their addresses, by name."""

    def __init__(
        self, upstreams: Mapping[str, tuple[GuardedServer, str]], runs: Runs, hosts: frozenset[str]
    ) -> None:
        self._upstreams = upstreams
        self._runs = runs
        self._hosts = hosts
        self._exchanges: _Exchanges = OrderedDict()
        self._unconfirmed: _Exchanges = OrderedDict()
        self._metadata_urls: dict[str, str] = {}
        self._client = httpx2.AsyncClient(
            timeout=httpx2.Timeout(None, connect=_CONNECT_SECONDS),
            limits=httpx2.Limits(max_connections=None, max_keepalive_connections=100),
            trust_env=False,
        )

    async def close(self) -> None:
        """Close the connections to servers, and what their sessions have open."""
        for exchange in (*self._exchanges.values(), *self._unconfirmed.values()):
            exchange.close("the proxy has ended")
        self._exchanges.clear()
        self._unconfirmed.clear()
        await self._client.aclose()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] != "http":
            return
        reply = Reply(send)
        headers = dict(scope["headers"])
        if not self._is_local(headers):
            await reply.refuse(403, "requests must name this address in `Host` and `Origin`")
            return
        if scope["method"] not in _METHODS:
            await reply.refuse(405, f"the methods are {', '.join(_METHODS)}")
            return
        path = str(scope["path"])
        asks_metadata = path.startswith(f"{WELL_KNOWN}/")
        name = path.removeprefix(WELL_KNOWN).strip("/").partition("/")[0]
        found = self._upstreams.get(name)
        if found is None:
            known = ", ".join(f"/{known}" for known in self._upstreams)
            await reply.refuse(404, f"no server is here; there are {known}")
            return
        if asks_metadata:
            await self._send_metadata(*found, headers[b"host"].decode("latin-1"), reply)
            return
        request = ProxiedRequest(self, found, scope, headers, reply)
        try:
            await request.serve(receive)
        except BodyError as error:
            await reply.refuse(error.status, error.detail)

    def _is_local(self, headers: Mapping[bytes, bytes]) -> bool:
        """Whether a request was meant for this address: web pages elsewhere can send others."""
        host = headers.get(b"host", b"").decode("latin-1")
        if _name_of(host) not in self._hosts:
            return False
        origin = headers.get(b"origin", b"").decode("latin-1")
        return not origin or _name_of(origin.partition("://")[2]) in self._hosts

    async def _send_metadata(
        self, server: GuardedServer, url: str, host: str, reply: Reply
    ) -> None:
        """Answer where a client may authorise for a server, as the server says it."""
        noted = self._metadata_urls.get(server.name)
        wanted: Headers = [(b"accept", b"application/json"), (b"accept-encoding", b"identity")]
        try:
            async with asyncio.timeout(_METADATA_SECONDS):
                for address in [noted] if noted else list_metadata_urls(url):
                    async with self.send("GET", address, wanted, b"") as response:
                        if response.status_code != 200:
                            continue
                        body = b""
                        async for chunk in response.aiter_bytes():
                            body += chunk
                            if len(body) > MAX_METADATA:
                                raise MetadataError(f"they are longer than {MAX_METADATA} bytes")
                    own = rewrite_metadata(body, url, resource_of(host, server.name))
                    await reply.send_body(200, _METADATA, own)
                    return
        except MetadataError as error:
            text = f"the metadata of the resource `{server.name}` are not passed on: {error}"
            await reply.refuse(502, text)
        except (httpx2.HTTPError, TimeoutError) as error:
            text = f"the server `{server.name}` cannot be reached: {error or 'it does not answer'}"
            await reply.refuse(502, text)
        else:
            await reply.refuse(404, f"the server `{server.name}` has no metadata for clients")

    def note_metadata_url(self, server: GuardedServer, url: str) -> None:
        """Note where a server says that its metadata are."""
        self._metadata_urls[server.name] = url

    def find_exchange(
        self, server: GuardedServer, headers: Mapping[bytes, bytes], peer: str
    ) -> Exchange:
        """Return the exchange of a request: its session's, or one of its own."""
        session = headers.get(SESSION_HEADER, b"")
        for known in (self._exchanges, self._unconfirmed):
            if (server.name, session) in known:
                known.move_to_end((server.name, session))
                return known[server.name, session]
        exchange = Exchange(
            server,
            self._runs,
            client=Client(protocol=headers.get(PROTOCOL_HEADER, b"").decode("latin-1")),
            peer=peer,
            run=headers.get(RUN_HEADER, b"").decode("latin-1"),
            notifies=bool(session),
        )
        if session:
            _keep(self._unconfirmed, (server.name, session), exchange, _MAX_UNCONFIRMED)
        return exchange

    def keep_exchange(self, exchange: Exchange, session: bytes) -> None:
        """Keep an exchange for the later requests of its session, which the server knows."""
        self._unconfirmed.pop((exchange.server.name, session), None)
        _keep(self._exchanges, (exchange.server.name, session), exchange, _MAX_SESSIONS)

    def drop_exchange(self, server: GuardedServer, session: bytes) -> None:
        """Forget a session that has ended."""
        for known in (self._exchanges, self._unconfirmed):
            exchange = known.pop((server.name, session), None)
            if exchange is not None:
                exchange.close("the session has ended")

    @contextlib.asynccontextmanager
    async def send(
        self, method: str, url: str, headers: Headers, body: bytes
    ) -> AsyncIterator[httpx2.Response]:
        """Send a request to a server. Raises `httpx2.HTTPError`."""
        request = self._client.build_request(method, url, headers=headers, content=body)
        response = await self._client.send(request, stream=True)
        try:
            yield response
        finally:
            await response.aclose()


def _keep(known: _Exchanges, key: tuple[str, bytes], exchange: Exchange, most: int) -> None:
    known[key] = exchange
    if len(known) > most:
        known.popitem(last=False)[1].close("the session was not used for long")


def _name_of(host: str) -> str:
    """Return a host without its port, an IPv6 address in brackets; empty if it is no host."""
    found = _HOST.fullmatch(host)
    return "" if found is None else found[1]
