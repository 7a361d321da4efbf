"""The proxy over HTTP, before a server that sends what the test says, byte by byte."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policyguard import Guard
from policyguard.adapters.mcp.call_sessions import LocalSessions
from policyguard.adapters.mcp.guarded_server import GuardedServer
from policyguard.adapters.mcp.http.event_stream import TooLongError, read_events
from policyguard.adapters.mcp.http.proxy import HttpProxy
from policyguard.adapters.mcp.messages import CLIENT_INFO, PROTOCOL_VERSION
from policyguard.adapters.mcp.runs import Runs
from policyguard.adapters.mcp.settings import ProxyLimits

POLICY = """\
policyguard: 1
name: p
limits: {tools: {slow: {timeout: 200ms}}}
rules: {no: {tools: [drop]}, ask: {tools: [ask], effect: ask}}
result_rules: {keys: {finds: [key], effect: redact}}
patterns: {key: "sk-[0-9]+"}
"""
META = {PROTOCOL_VERSION: "2026-07-28", CLIENT_INFO: {"name": "tester"}}

Handler = Callable[[bytes, asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


class Response:
    """What a client has received, and how it leaves."""

    def __init__(self) -> None:
        self.status = 0
        self.headers: dict[str, str] = {}
        self.body = b""
        self.leave = asyncio.Event()
        self.has_body = asyncio.Event()

    async def send(self, message: Any) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            self.headers = {name.decode(): value.decode() for name, value in message["headers"]}
        else:
            self.body += message["body"]
            if message["body"]:
                self.has_body.set()

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def events(self) -> list[Any]:
        lines = self.body.replace(b"\r\n", b"\n").split(b"\n")
        data = [line[5:].strip() for line in lines if line.startswith(b"data:")]
        return [json.loads(one) for one in data if one]


class Front:
    """A proxy, and the client that asks it."""

    def __init__(self, sessions: LocalSessions, url: str, limits: ProxyLimits) -> None:
        self.sessions = sessions
        self.server = GuardedServer("up", sessions, limits)
        runs = Runs(sessions, idle=60)
        hosts = frozenset({"localhost"})
        self.proxy = HttpProxy({"up": (self.server, url)}, runs, hosts)

    async def ask(
        self,
        message: Any = None,
        response: Response | None = None,
        *,
        path: str = "/up",
        method: str = "POST",
        **headers: str,
    ) -> Response:
        """Send a request; return the response once it is complete, or the client has left."""
        response = response or Response()
        body = message if isinstance(message, bytes) else json.dumps(message).encode()
        given_headers = {"host": "localhost:1", "content-type": "application/json"}
        given_headers |= {name.replace("_", "-"): value for name, value in headers.items()}
        scope = {
            "type": "http",
            "method": method,
            "path": path,
            "query_string": b"",
            "headers": [(n.encode(), v.encode()) for n, v in given_headers.items()],
            "client": ("127.0.0.1", 5),
        }
        sent = [{"type": "http.request", "body": body, "more_body": False}]

        async def receive() -> Any:
            if sent:
                return sent.pop()
            await response.leave.wait()
            return {"type": "http.disconnect"}

        async with asyncio.timeout(20):
            await self.proxy(scope, receive, response.send)
        return response

    @property
    def open_calls(self) -> int:
        return sum(session.in_flight for session in self.sessions.list())


def call(tool: str = "read", id_: int = 1, meta: Any = META, **arguments: Any) -> dict[str, Any]:
    params = {"name": tool, "arguments": arguments, "_meta": meta}
    return {"jsonrpc": "2.0", "id": id_, "method": "tools/call", "params": params}


def reply(body: Any, *headers: str, status: str = "200 OK") -> bytes:
    data = json.dumps(body).encode()
    lines = [f"HTTP/1.1 {status}", "content-type: application/json", *headers]
    return "\r\n".join([*lines, f"content-length: {len(data)}", "", ""]).encode() + data


STREAM = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n"


def result(text: str, id_: int = 1) -> dict[str, Any]:
    content = [{"type": "text", "text": text}]
    return {"jsonrpc": "2.0", "id": id_, "result": {"content": content}}


Play = Callable[..., None]
_LIMITS = ProxyLimits()


@pytest.fixture
def play(tmp_path: Path) -> Iterator[Play]:
    """Plays a story before a server that handles each request with `handler`."""
    file = tmp_path / "policy.yaml"
    file.write_text(POLICY)
    with Guard.load(file) as guard:

        async def run(
            handler: Handler,
            story: Callable[[Front], Coroutine[Any, Any, None]],
            limits: ProxyLimits,
        ) -> None:
            async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
                try:
                    while head := await reader.readuntil(b"\r\n\r\n"):
                        await handler(head, reader, writer)
                except (asyncio.IncompleteReadError, ConnectionError):
                    pass
                finally:
                    writer.close()

            server = await asyncio.start_server(serve, "127.0.0.1", 0)
            port = server.sockets[0].getsockname()[1]
            front = Front(LocalSessions(guard), f"http://127.0.0.1:{port}/mcp", limits)
            try:
                await story(front)
            finally:
                await front.proxy.close()
                server.close()

        yield lambda handler, story, limits=_LIMITS: asyncio.run(run(handler, story, limits))


async def read_body(head: bytes, reader: asyncio.StreamReader) -> Any:
    lengths = [line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length")]
    return json.loads(await reader.readexactly(int(lengths[0].split(b":")[1])))


def answers(*replies: bytes, seen: list[Any] | None = None) -> Handler:
    """Return a handler that sends these replies, one to each request."""
    left = [*replies]

    async def handle(
        head: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        message = await read_body(head, reader) if b"POST" in head else None
        if seen is not None:
            seen.append((head.decode(), message))
        answer = left.pop(0)
        writer.write(answer)
        await writer.drain()
        if b"connection: close" in answer:
            writer.close()

    return handle


def test_headers_pass_but_those_of_the_connection(play: Play) -> None:
    seen: list[Any] = []

    async def story(front: Front) -> None:
        response = await front.ask(
            call(), authorization="Bearer x", mcp_name="read", policyguard_session="run-7"
        )
        assert response.json == result("ok")
        assert response.headers["x-own"] == "1"
        head = seen[0][0].lower()
        assert "authorization: bearer x\r\n" in head
        assert "mcp-name: read\r\n" in head
        assert "host: 127.0.0.1" in head
        assert "policyguard-session" not in head
        assert [session.session for session in front.sessions.list()] == ["mcp/tester/run-7"]

    play(answers(reply(result("ok"), "X-Own: 1"), seen=seen), story)


def test_a_refused_call_does_not_reach_the_server(play: Play) -> None:
    async def story(front: Front) -> None:
        response = await front.ask(call("drop"))
        assert response.json["result"]["isError"] is True
        assert response.status == 200

    play(answers(), story)


@pytest.mark.parametrize("step", [1, 3, 1000])
def test_results_in_streams_are_redacted(play: Play, step: int) -> None:
    note = {"jsonrpc": "2.0", "method": "notifications/progress", "params": {"progress": 1}}
    first = b": hello\r\n\r\nid: 7\r\nevent: message\r\ndata: " + json.dumps(note).encode()
    body = first + b"\r\n\r\ndata: " + json.dumps(result("a sk-1")).encode() + b"\r\n\r\n"

    async def handle(
        head: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        await read_body(head, reader)
        writer.write(STREAM)
        for at in range(0, len(body), step):
            writer.write(body[at : at + step])
            await writer.drain()
        writer.close()

    async def story(front: Front) -> None:
        response = await front.ask(call())
        assert response.headers["content-type"] == "text/event-stream"
        assert response.body.startswith(first + b"\r\n\r\n")
        assert response.events == [note, result("a [key]")]
        assert front.open_calls == 0

    play(handle, story)


def test_a_server_that_cannot_be_reached(play: Play) -> None:
    async def story(front: Front) -> None:
        front.proxy._upstreams = {"up": (front.server, "http://127.0.0.1:1/mcp")}  # type: ignore[misc]
        for number in range(3):  # each gives its slot back
            response = await front.ask(call(number=number))
            assert response.status == 200
            assert "`up` cannot be reached" in response.json["error"]["message"]
        assert front.open_calls == 0
        note = {"jsonrpc": "2.0", "method": "notifications/x"}
        assert (await front.ask(note)).status == 502

    play(answers(), story, ProxyLimits(max_calls=1))


@pytest.mark.parametrize("sent", [b"", STREAM, STREAM + b"data: {}\r\n\r\n"])
def test_a_server_that_goes_before_its_response(play: Play, sent: bytes) -> None:
    async def handle(
        head: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        await read_body(head, reader)
        writer.write(sent)
        await writer.drain()
        writer.close()

    async def story(front: Front) -> None:
        response = await front.ask(call())
        error = response.events[-1] if sent else response.json
        assert error["id"] == 1
        assert "`up`" in error["error"]["message"]
        assert front.open_calls == 0

    play(handle, story)


@pytest.mark.parametrize("sent", [b"", STREAM + b": begun\r\n\r\n"])
def test_a_client_that_leaves_cancels_its_call(play: Play, sent: bytes) -> None:
    """The server learns of it at once, before it sends a header and between two events."""
    arrived, left = asyncio.Event(), asyncio.Event()

    async def handle(
        head: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        await read_body(head, reader)
        writer.write(sent)
        await writer.drain()
        arrived.set()
        await reader.read()
        left.set()

    async def story(front: Front) -> None:
        response = Response()
        asking = asyncio.create_task(front.ask(call(), response))
        await arrived.wait()
        if sent:
            await response.has_body.wait()
        assert front.open_calls == 1
        response.leave.set()
        await asking
        async with asyncio.timeout(10):
            await left.wait()
        assert front.open_calls == 0

    play(handle, story)


def initialize() -> dict[str, Any]:
    params = {"protocolVersion": "2025-11-25", "clientInfo": {"name": "old"}, "capabilities": {}}
    return {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params}


HELLO = reply({"jsonrpc": "2.0", "id": 0, "result": {}}, "Mcp-Session-Id: s1")


def test_a_result_may_come_with_another_stream(play: Play) -> None:
    """A client whose stream ends resumes it with another request: the result is its call's."""
    first = STREAM + b"id: 1\r\ndata: \r\n\r\n"
    rest = STREAM + b"id: 2\r\ndata: " + json.dumps(result("sk-1")).encode() + b"\r\n\r\n"
    seen: list[Any] = []

    async def story(front: Front) -> None:
        await front.ask(initialize())
        session = {"mcp_session_id": "s1"}
        assert (await front.ask(call(meta={}), **session)).events == []
        resumed = await front.ask(b"", method="GET", last_event_id="1", **session)
        assert resumed.events == [result("[key]")]
        assert b"id: 2" in resumed.body
        assert "last-event-id: 1" in seen[2][0].lower()
        assert front.open_calls == 0

    play(answers(HELLO, first, rest, seen=seen), story)


def test_a_session_that_ends_cancels_its_calls(play: Play) -> None:
    never = asyncio.Event()
    replies = [HELLO]

    async def handle(
        head: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        if head.startswith(b"DELETE"):
            writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n")
            return
        await read_body(head, reader)
        if replies:
            writer.write(replies.pop())
            return
        never.set()
        await reader.read()

    async def story(front: Front) -> None:
        await front.ask(initialize())
        response = Response()
        asking = asyncio.create_task(front.ask(call(meta={}), response, mcp_session_id="s1"))
        await never.wait()
        response.leave.set()
        await asking
        assert front.open_calls == 1  # it may come back for the result
        never.clear()
        again = Response()  # the slot of the first is free
        asking = asyncio.create_task(front.ask(call(id_=2, meta={}), again, mcp_session_id="s1"))
        await never.wait()
        again.leave.set()
        await asking
        assert (await front.ask(b"", method="DELETE", mcp_session_id="s1")).status == 200
        assert front.open_calls == 0

    play(handle, story, ProxyLimits(max_calls=1))


def test_a_client_that_leaves_while_its_user_is_asked(play: Play) -> None:
    """Its id and its slot are free again."""

    async def story(front: Front) -> None:
        hello = initialize()
        hello["params"]["capabilities"] = {"elicitation": {}}
        await front.ask(hello)
        for _ in range(2):
            response = Response()
            asking = asyncio.create_task(
                front.ask(call("ask", meta={}), response, mcp_session_id="s1")
            )
            await response.has_body.wait()
            assert response.events[0]["method"] == "elicitation/create"
            response.leave.set()
            await asking
        assert front.open_calls == 0

    play(answers(HELLO), story, ProxyLimits(max_calls=1))


def test_a_client_that_reads_nothing(play: Play) -> None:
    """The server is read no further than the client reads."""
    written = 0

    async def handle(
        head: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        nonlocal written
        await read_body(head, reader)
        writer.write(STREAM)
        for _ in range(2000):
            writer.write(b'data: {"method":"notifications/message"}' + b" " * 50_000 + b"\n\n")
            await writer.drain()
            written += 50_000

    async def story(front: Front) -> None:
        response = Response()
        reads = asyncio.Event()

        async def send(message: Any) -> None:
            if message["type"] == "http.response.body":
                await reads.wait()

        response.send = send  # type: ignore[method-assign]
        asking = asyncio.create_task(front.ask(call(), response))
        before = -1
        while before != written or not written:
            before = written
            await asyncio.sleep(0.3)
        assert written < 30_000_000
        response.leave.set()
        await asking

    play(handle, story)


def test_a_call_whose_time_is_over(play: Play) -> None:
    async def handle(
        head: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        await reader.read()

    async def story(front: Front) -> None:
        response = await front.ask(call("slow"))
        assert "longer than 0.2 s" in response.json["result"]["content"][0]["text"]
        assert front.open_calls == 0

    play(handle, story)


@pytest.mark.parametrize(
    "headers",
    [{"host": "evil.example"}, {"host": ""}, {"origin": "http://evil.example"}],
)
def test_requests_meant_for_other_addresses_are_refused(
    play: Play, headers: dict[str, str]
) -> None:
    async def story(front: Front) -> None:
        assert (await front.ask(call(), **headers)).status == 403

    play(answers(), story)


def test_what_is_not_passed_on(play: Play) -> None:
    async def story(front: Front) -> None:
        assert (await front.ask(call(), path="/other")).status == 404
        assert (await front.ask(b"no json")).json["error"]["code"] == -32700
        assert (await front.ask([call()])).status == 400
        assert (await front.ask(call(text="x" * 2000))).status == 413

    play(answers(), story, ProxyLimits(max_message=1000))


@pytest.mark.parametrize("stream", [False, True])
def test_a_response_that_is_too_long(play: Play, stream: bool) -> None:
    long = result("x" * 2000)
    data = STREAM + b"data: " + json.dumps(long).encode() + b"\n\n" if stream else reply(long)

    async def story(front: Front) -> None:
        response = await front.ask(call())
        error = response.events[-1] if stream else response.json
        assert "longer than 1000 bytes" in error["error"]["message"]
        assert front.open_calls == 0

    play(answers(data), story, ProxyLimits(max_message=1000))


@pytest.mark.parametrize("status", ["301 Moved", "307 Temporary Redirect", "308 Moved"])
def test_a_redirect_does_not_lead_around_the_proxy(play: Play, status: str) -> None:
    async def story(front: Front) -> None:
        response = await front.ask(call())
        assert response.status == 200
        assert "redirects to http://x/mcp/" in response.json["error"]["message"]
        assert "location" not in response.headers
        assert front.open_calls == 0

    play(answers(reply({}, "Location: http://x/mcp/", status=status)), story)


def test_a_status_that_is_an_error_passes(play: Play) -> None:
    async def story(front: Front) -> None:
        response = await front.ask(call())
        assert response.status == 401
        assert response.headers["www-authenticate"] == "Bearer"
        assert front.open_calls == 0

    body = reply({"why": "no token"}, "WWW-Authenticate: Bearer", status="401 Unauthorized")
    play(answers(body), story)


@given(
    events=st.lists(st.sampled_from([b"data: 1", b": x", b"id: 2\ndata: 3\ndata:4", b"data"])),
    end=st.sampled_from([b"\n", b"\r\n", b"\r"]),
    step=st.integers(1, 9),
)
def test_events_do_not_depend_on_chunks(events: list[bytes], end: bytes, step: int) -> None:
    raw = b"".join(event.replace(b"\n", end) + end + end for event in events)

    async def read(size: int) -> Any:
        async def chunks() -> Any:
            for at in range(0, len(raw), size):
                yield raw[at : at + size]

        return [event async for event in read_events(chunks(), 100)]

    found = asyncio.run(read(step))
    assert b"".join(event.raw for event in found) == raw
    assert [event.data for event in found] == [
        {b"data: 1": b"1", b"id: 2\ndata: 3\ndata:4": b"3\n4"}.get(event, b"") for event in events
    ]


def test_an_event_that_never_ends() -> None:
    async def chunks() -> Any:
        while True:
            yield b"data: x" * 10

    async def read() -> None:
        async for _ in read_events(chunks(), 1000):
            pass

    with pytest.raises(TooLongError):
        asyncio.run(read())
