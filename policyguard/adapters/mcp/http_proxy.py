"""The proxy over streamable HTTP: a reverse proxy for several servers, each at `/NAME`.

Headers, session ids, event ids and both eras of the protocol pass as they are; the servers' own
sessions are the clients'.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import OrderedDict
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import Any

import httpx2

from policyguard.adapters.mcp.clients import Client
from policyguard.adapters.mcp.event_stream import TooLongError, read_events
from policyguard.adapters.mcp.exchange import Exchange, Passage
from policyguard.adapters.mcp.guarded_server import GuardedServer
from policyguard.adapters.mcp.http_reply import Headers, Reply, Send
from policyguard.adapters.mcp.messages import (
    INVALID_REQUEST,
    PARSE_ERROR,
    SERVER_GONE,
    MalformedError,
    Message,
    decode,
    encode,
    error_response,
    is_request,
)
from policyguard.adapters.mcp.runs import Runs
from policyguard.adapters.request_body import BodyError, Receive, read_body
from policyguard.guard.host_log import warn

_SESSION, _PROTOCOL, _RUN = b"mcp-session-id", b"mcp-protocol-version", b"policyguard-session"
_MAX_SESSIONS = 4096
"""Sessions of clients that are remembered; the least recently used are forgotten first."""

_CONNECT_SECONDS = 10.0
_NOT_PASSED = frozenset(
    {
        b"accept-encoding",
        b"connection",
        b"content-encoding",
        b"content-length",
        b"date",
        b"expect",
        b"host",
        b"keep-alive",
        b"proxy-authenticate",
        b"proxy-authorization",
        b"server",
        b"te",
        b"trailer",
        b"transfer-encoding",
        b"upgrade",
        _RUN,
    }
)
"""Headers of a connection, not of a message; and those that say how a body was encoded."""

Scope = Mapping[str, Any]


class HttpProxy:
    """The ASGI application. `upstreams` are the servers with their addresses, by name."""

    def __init__(
        self, upstreams: Mapping[str, tuple[GuardedServer, str]], runs: Runs, hosts: frozenset[str]
    ) -> None:
        self._upstreams = upstreams
        self._runs = runs
        self._hosts = hosts
        self._exchanges: OrderedDict[tuple[str, bytes], Exchange] = OrderedDict()
        self._client = httpx2.AsyncClient(
            timeout=httpx2.Timeout(None, connect=_CONNECT_SECONDS),
            limits=httpx2.Limits(max_connections=None, max_keepalive_connections=100),
            trust_env=False,
        )

    async def close(self) -> None:
        """Close the connections to servers, and what their sessions have open."""
        for exchange in self._exchanges.values():
            exchange.close("the proxy has ended")
        self._exchanges.clear()
        await self._client.aclose()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] != "http":
            return
        reply = Reply(send)
        headers = dict(scope["headers"])
        if not self._is_local(headers):
            await _refuse(reply, 403, "requests must name this address in `Host` and `Origin`")
            return
        name = str(scope["path"]).strip("/").partition("/")[0]
        found = self._upstreams.get(name)
        if found is None:
            known = ", ".join(f"/{known}" for known in self._upstreams)
            await _refuse(reply, 404, f"no server is here; there are {known}")
            return
        request = _Request(self, found, scope, headers, reply)
        try:
            await request.serve(receive)
        except BodyError as error:
            await _refuse(reply, error.status, error.detail)

    def _is_local(self, headers: Mapping[bytes, bytes]) -> bool:
        """Whether a request was meant for this address: web pages elsewhere can send others."""
        host = headers.get(b"host", b"").decode("latin-1")
        if _without_port(host) not in self._hosts:
            return False
        origin = headers.get(b"origin", b"").decode("latin-1")
        return not origin or _without_port(origin.partition("://")[2]) in self._hosts

    def find_exchange(
        self, server: GuardedServer, headers: Mapping[bytes, bytes], peer: str
    ) -> Exchange:
        """Return the exchange of a request: its session's, or one of its own."""
        session = headers.get(_SESSION, b"")
        exchange = self._exchanges.get((server.name, session)) if session else None
        if exchange is not None:
            self._exchanges.move_to_end((server.name, session))
            return exchange
        exchange = Exchange(
            server,
            self._runs,
            client=Client(protocol=headers.get(_PROTOCOL, b"").decode("latin-1")),
            peer=peer,
            run=headers.get(_RUN, b"").decode("latin-1"),
            notifies=bool(session),
        )
        if session:
            self.keep_exchange(exchange, session)
        return exchange

    def keep_exchange(self, exchange: Exchange, session: bytes) -> None:
        """Keep an exchange for the later requests of its session."""
        self._exchanges[exchange.server.name, session] = exchange
        if len(self._exchanges) > _MAX_SESSIONS:
            self._exchanges.popitem(last=False)[1].close("the session was not used for long")

    def drop_exchange(self, server: GuardedServer, session: bytes) -> None:
        """Forget a session that has ended."""
        exchange = self._exchanges.pop((server.name, session), None)
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


class _Request:
    """One HTTP request of a client, and its way to the server and back."""

    def __init__(
        self,
        proxy: HttpProxy,
        upstream: tuple[GuardedServer, str],
        scope: Scope,
        headers: Mapping[bytes, bytes],
        reply: Reply,
    ) -> None:
        self._proxy = proxy
        self._server, self._url = upstream
        self._method = str(scope["method"])
        self._headers = headers
        self._reply = reply
        self._session = headers.get(_SESSION, b"")
        peer = (scope.get("client") or ("",))[0]
        self._exchange = proxy.find_exchange(self._server, headers, peer)
        passed = [(name, value) for name, value in scope["headers"] if name not in _NOT_PASSED]
        self._passed: Headers = [*passed, (b"accept-encoding", b"identity")]
        query = scope.get("query_string", b"").decode("latin-1")
        if query:
            self._url += ("&" if "?" in self._url else "?") + query

    async def serve(self, receive: Receive) -> None:
        """Answer the request, unless its client leaves before."""
        body = await read_body(receive, self._server.limits.max_message)
        message: Message = {}
        if self._method == "POST":
            try:
                messages = decode(body)
            except MalformedError as error:
                text = f"the message cannot be read: {error}"
                await self._reply.send_message(error_response(None, PARSE_ERROR, text), 400)
                return
            if len(messages) != 1 or body.lstrip().startswith(b"["):
                text = "batches are not passed on: send each message by itself"
                await self._reply.send_message(error_response(None, INVALID_REQUEST, text), 400)
                return
            message = messages[0]
        work = asyncio.create_task(self._work(message, body))
        leaving = asyncio.create_task(_wait_until_gone(receive))
        try:
            await asyncio.wait({work, leaving}, return_when=asyncio.FIRST_COMPLETED)
            if not work.done():
                work.cancel()
                await asyncio.gather(work, return_exceptions=True)
                self._note_gone(message)
                return
            if work.cancelled():  # by a notification of the client
                await self._reply.end()
            else:
                work.result()
        finally:
            leaving.cancel()
            if not work.done():
                work.cancel()
            if not self._session and self._session_of_exchange is None:
                self._exchange.close("the request has ended")

    _session_of_exchange: bytes | None = None

    def _note_gone(self, message: Message) -> None:
        """Note that the client has left: without sessions this is how it cancels a request."""
        if self._session:
            self._exchange.let_go(message)
        else:
            self._exchange.close("the client has gone")

    async def _work(self, message: Message, body: bytes) -> None:
        exchange, reply = self._exchange, self._reply
        if self._method != "POST":
            await self._pass(message, body)
            return
        if message.get("method") == "subscriptions/listen":
            exchange.listen_with(reply.push)
        passage = exchange.from_client(message, reply.push)
        if not isinstance(passage, Passage):
            passage = await passage
        if passage.to_client is not None:
            await reply.send_message(passage.to_client)
        elif passage.to_server is None:
            await reply.end()
        else:
            if passage.to_server is not message:
                body = encode(passage.to_server)
            await self._pass(message, body)

    async def _pass(self, message: Message, body: bytes) -> None:
        """Send the request to the server, and its response to the client."""
        timeout = self._exchange.timeout_of(message)
        try:
            async with asyncio.timeout(timeout):
                async with self._proxy.send(
                    self._method, self._url, self._passed, body
                ) as response:
                    await self._relay(message, response)
        except TimeoutError:
            await self._time_out(message)
        except httpx2.HTTPError as error:
            reason = f"the server `{self._server.name}` cannot be reached: {_describe(error)}"
            await self._fail(message, reason)
        except TooLongError:
            most = self._server.limits.max_message
            reason = f"a message of `{self._server.name}` is longer than {most} bytes"
            await self._fail(message, reason)
        except Exception:
            self._exchange.fail(message, "the proxy failed", SERVER_GONE)
            raise

    async def _relay(self, message: Message, response: httpx2.Response) -> None:
        headers = [(n.lower(), v) for n, v in response.headers.raw if n.lower() not in _NOT_PASSED]
        self._note_session(message, response)
        kind = response.headers.get("content-type", "").partition(";")[0].strip().lower()
        if kind == "text/event-stream":
            await self._relay_events(message, response, headers)
            return
        body = await self._read(response)
        if kind == "application/json" and body:
            body = self._edit(body)
        elif self._exchange.is_open(message) and response.status_code < 400:
            await self._fail(message, f"the server `{self._server.name}` sent no response")
            return
        if self._exchange.is_open(message):
            reason = f"the server `{self._server.name}` answered with status {response.status_code}"
            self._exchange.fail(message, reason, SERVER_GONE)
        if self._reply.is_stream:
            for passed in decode(body):
                await self._reply.send_message(passed)
            return
        await self._reply.send_body(response.status_code, headers, body)

    def _note_session(self, message: Message, response: httpx2.Response) -> None:
        session = response.headers.get("mcp-session-id", "").encode("latin-1")
        if session and message.get("method") == "initialize" and response.status_code < 400:
            self._session_of_exchange = session
            self._exchange.notify_later()
            self._proxy.keep_exchange(self._exchange, session)
        if self._method == "DELETE" and self._session and response.status_code < 400:
            self._proxy.drop_exchange(self._server, self._session)

    async def _read(self, response: httpx2.Response) -> bytes:
        chunks, size = [], 0
        async for chunk in response.aiter_bytes():
            size += len(chunk)
            if size > self._server.limits.max_message:
                raise TooLongError
            chunks.append(chunk)
        return b"".join(chunks)

    def _edit(self, body: bytes) -> bytes:
        """Return a body of messages as the client may see it."""
        try:
            messages = decode(body)
        except MalformedError:
            warn(f"`{self._server.name}` sent what is no message")
            return b""
        passed = [self._exchange.from_server(message) for message in messages]
        if all(map(_is_same, passed, messages)):
            return body
        kept = [message for message in passed if message is not None]
        return encode(kept if body.lstrip().startswith(b"[") or len(kept) != 1 else kept[0])

    async def _relay_events(
        self, message: Message, response: httpx2.Response, headers: Headers
    ) -> None:
        reply, exchange = self._reply, self._exchange
        await reply.start_stream(headers, response.status_code)
        if self._method == "GET":
            exchange.listen_with(reply.push)
        can_resume = False
        try:
            async for event in read_events(response.aiter_bytes(), self._server.limits.max_message):
                can_resume = can_resume or event.has_id
                raw = event.raw
                if event.data:
                    edited = self._edit(event.data)
                    if edited is not event.data:
                        if edited in (b"", b"[]"):
                            continue
                        raw = event.with_data(edited)
                await reply.send_event(raw)
        finally:
            if self._method == "GET":
                exchange.listen_with(None)
        if exchange.is_open(message) and not (can_resume and self._session):
            reason = f"the server `{self._server.name}` closed the connection before its response"
            await self._fail(message, reason)
            return
        if exchange.is_open(message):
            exchange.let_go(message)
        await reply.end()

    async def _fail(self, message: Message, reason: str) -> None:
        """Tell the client that a request did not get through, or got no response."""
        warn(reason)
        failed = self._exchange.fail(message, reason, SERVER_GONE)
        if failed is None and is_request(message):
            failed = error_response(message["id"], SERVER_GONE, reason)
        if failed is not None:
            await self._reply.send_message(failed)
        elif self._reply.is_started:
            await self._reply.end()
        else:
            await _refuse(self._reply, 502, reason)

    async def _time_out(self, message: Message) -> None:
        passage = self._exchange.time_out(message)
        if passage.to_client is not None:
            await self._reply.send_message(passage.to_client)
        if passage.to_server is not None and self._session:
            with contextlib.suppress(httpx2.HTTPError):
                async with self._proxy.send(
                    "POST", self._url, self._passed, encode(passage.to_server)
                ):
                    pass


async def _wait_until_gone(receive: Callable[[], Awaitable[Any]]) -> None:
    """Wait until the client leaves; a server learns of it by itself only when it sends."""
    while (await receive())["type"] != "http.disconnect":
        pass


async def _refuse(reply: Reply, status: int, text: str) -> None:
    if not reply.is_started:
        await reply.send_message(error_response(None, INVALID_REQUEST, text), status)


def _is_same(passed: object, message: object) -> bool:
    return passed is message


def _describe(error: Exception) -> str:
    return str(error) or type(error).__name__


def _without_port(host: str) -> str:
    """Return a host's name; that of an IPv6 address in brackets."""
    if host.startswith("["):
        return host.partition("]")[0] + "]"
    return host.partition(":")[0]
