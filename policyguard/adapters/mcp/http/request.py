"""One HTTP request of a client: its way to the server, and the response's way back."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from typing import Any, Protocol

import httpx2

from policyguard.adapters.mcp.exchange import Exchange
from policyguard.adapters.mcp.guarded_server import GuardedServer
from policyguard.adapters.mcp.http.authorization import find_metadata_url, rewrite_challenge
from policyguard.adapters.mcp.http.batch import Batch, find_problem
from policyguard.adapters.mcp.http.event_stream import TooLongError, read_events
from policyguard.adapters.mcp.http.reply import JSON_HEADERS, Headers, Reply, Send
from policyguard.adapters.mcp.messages import (
    MODERN,
    PARSE_ERROR,
    SERVER_GONE,
    MalformedError,
    Message,
    as_judged,
    decode,
    encode,
    error_response,
    is_request,
    is_response,
)
from policyguard.adapters.mcp.pending import Passage
from policyguard.adapters.request_body import Receive, read_body
from policyguard.guard.host_log import warn

SESSION_HEADER, RUN_HEADER = b"mcp-session-id", b"policyguard-session"
PROTOCOL_HEADER = b"mcp-protocol-version"

_NOT_PASSED = frozenset(
    {
        b"accept-encoding",
        b"alt-svc",
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
        RUN_HEADER,
    }
)
"""Headers of a connection, not of a message; how a body was encoded, and where else a server is."""

_ENCODINGS = ("identity", "gzip", "deflate", "")
"""How a body may be encoded, though none was asked for. Others, or two, grow without a bound."""

_OF_MESSAGE = (b"mcp-method", b"mcp-name", b"mcp-param-", b"last-event-id")
"""How the names of headers begin that repeat what the client's message says."""

Scope = Mapping[str, Any]


class Upstreams(Protocol):
    """The way to the servers, and the sessions that clients have with them."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""

    def find_exchange(
        self, server: GuardedServer, headers: Mapping[bytes, bytes], peer: str
    ) -> Exchange:
        """Return the exchange of a request: its session's, or one of its own."""

    def keep_exchange(self, exchange: Exchange, session: bytes) -> None:
        """Keep an exchange for the later requests of its session, which the server knows."""

    def note_metadata_url(self, server: GuardedServer, url: str) -> None:
        """Note where a server says that its metadata are."""

    def drop_exchange(self, server: GuardedServer, session: bytes) -> None:
        """Forget a session that has ended."""

    def send(
        self, method: str, url: str, headers: Headers, body: bytes
    ) -> AbstractAsyncContextManager[httpx2.Response]:
        """Send a request to a server. Raises `httpx2.HTTPError`."""


class ProxiedRequest:
    """One HTTP request of a client, and its way to the server and back."""

    def __init__(
        self,
        proxy: Upstreams,
        upstream: tuple[GuardedServer, str],
        scope: Scope,
        headers: Mapping[bytes, bytes],
        reply: Reply,
    ) -> None:
        self._proxy, self._scope = proxy, scope
        self._server, self._url = upstream
        self._method = str(scope["method"])
        self._reply = reply
        self._new_session = False
        self._session = headers.get(SESSION_HEADER, b"")
        self._host = headers.get(b"host", b"").decode("latin-1")
        self._version = headers.get(PROTOCOL_HEADER, b"").decode("latin-1")
        peer = (scope.get("client") or ("",))[0]
        self._exchange = proxy.find_exchange(self._server, headers, peer)
        self._exchange.ask_server = self._ask_server
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
                await self._serve_batch(messages, receive)
                return
            message = messages[0]
            body = as_judged(body, message)
        work = asyncio.create_task(self._work(message, body))
        leaving = asyncio.create_task(_wait_until_gone(receive))
        try:
            await asyncio.wait({work, leaving}, return_when=asyncio.FIRST_COMPLETED)
            if not work.done():
                work.cancel()
                await asyncio.gather(work, return_exceptions=True)
                if self._session:  # it may come back for the result
                    self._exchange.let_go(message)
                return
            if work.cancelled():  # by a notification of the client
                await self._reply.end()
            else:
                work.result()
        finally:
            leaving.cancel()
            if not work.done():
                work.cancel()
            if not self._session and not self._new_session:
                # Without sessions a client cancels what it has asked for by leaving.
                self._exchange.close("the client has gone")

    async def _serve_batch(self, messages: list[Message], receive: Receive) -> None:
        limits = self._server.limits
        most = limits.max_calls + limits.max_waiting
        problem = find_problem(messages, self._version, most)
        if problem:
            await self._reply.refuse(400, problem)
            return
        leaving = asyncio.create_task(_wait_until_gone(receive))
        try:
            await Batch(self._proxy, self._scope, self._reply).serve(messages, leaving)
        finally:
            leaving.cancel()

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
        except Exception:  # whatever it is, the client waits for an answer
            self._exchange.fail(message, "the proxy failed", SERVER_GONE)
            raise

    async def _relay(self, message: Message, response: httpx2.Response) -> None:
        headers = [
            (name.lower(), self._edit_header(name.lower(), value))
            for name, value in response.headers.raw
            if name.lower() not in _NOT_PASSED
        ]
        encoding = response.headers.get("content-encoding", "identity").strip().lower()
        if encoding not in _ENCODINGS:
            reason = f"the server `{self._server.name}` uses an encoding that was not asked for"
            await self._fail(message, reason)
            return
        if response.has_redirect_location:  # a client that followed it would leave the proxy out
            elsewhere = response.headers["location"]
            reason = f"the server `{self._server.name}` redirects to {elsewhere}: name that address"
            await self._fail(message, reason)
            return
        self._note_session(message, response)
        kind = response.headers.get("content-type", "").partition(";")[0].strip().lower()
        if kind == "text/event-stream":
            await self._relay_events(message, response, headers)
            return
        body = await self._read(response)
        if response.status_code < 400:
            body = self._edit(body) if kind == "application/json" and body else b""
            if not body and self._exchange.is_open(message):
                await self._fail(message, f"the server `{self._server.name}` sent no response")
                return
            if not body and self._method == "GET":  # clients read a stream, whatever it is called
                await self._fail(message, f"the server `{self._server.name}` sent no stream")
                return
        elif kind == "application/json" and body and not _is_plain(body):
            body = self._edit(body)
        if self._exchange.is_open(message):
            reason = f"the server `{self._server.name}` answered with status {response.status_code}"
            hides = self._exchange.may_edit_result(message)
            failed = self._exchange.fail(message, reason, SERVER_GONE)
            if hides and failed is not None:  # some clients show the body to a model
                body = encode(failed)
                headers = [*(one for one in headers if one[0] != b"content-type"), *JSON_HEADERS]
        if self._reply.is_stream:
            for passed in decode(body):
                await self._reply.send_message(passed)
            return
        await self._reply.send_body(response.status_code, headers, body)

    def _edit_header(self, name: bytes, value: bytes) -> bytes:
        """Return a header as the client may see it: it authorises for the address that it calls."""
        if name != b"www-authenticate":
            return value
        url = find_metadata_url(value, self._url)
        if url is not None:
            self._proxy.note_metadata_url(self._server, url)
        return rewrite_challenge(value, self._host, self._server.name)

    def _note_session(self, message: Message, response: httpx2.Response) -> None:
        session = response.headers.get("mcp-session-id", "").encode("latin-1")
        if session and message.get("method") == "initialize" and response.status_code < 400:
            self._new_session = True
            self._exchange.notify_later()
            self._proxy.keep_exchange(self._exchange, session)
        elif self._session and response.status_code < 400:
            self._proxy.keep_exchange(self._exchange, self._session)
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
            self._server.log.warn(f"`{self._server.name}` sent what is no message")
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

    async def _ask_server(self, message: Message) -> Message:
        """Send a request of the proxy's own, as the client; return the response."""
        kept = [one for one in self._passed if not one[0].startswith(_OF_MESSAGE)]
        if self._version >= MODERN:
            kept.append((b"mcp-method", str(message["method"]).encode()))
        async with self._proxy.send("POST", self._url, kept, encode(message)) as response:
            kind = response.headers.get("content-type", "").partition(";")[0].strip().lower()
            if kind == "application/json":
                return decode(await self._read(response))[0]
            if kind == "text/event-stream":
                most = self._server.limits.max_message
                async for event in read_events(response.aiter_bytes(), most):
                    for answer in decode(event.data) if event.data else ():
                        if answer.get("id") == message["id"] and is_response(answer):
                            return answer
        return {}

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
            await self._reply.refuse(502, reason)

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


def _is_plain(body: bytes) -> bool:
    """Whether a body is JSON but no message, such as an error of OAuth."""
    try:
        messages = decode(body)
    except MalformedError:
        return True
    return not any({"jsonrpc", "id", "result", "method"} & one.keys() for one in messages)


def _is_same(passed: object, message: object) -> bool:
    return passed is message


def _describe(error: Exception) -> str:
    return str(error) or type(error).__name__
