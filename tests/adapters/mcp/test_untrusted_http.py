"""Servers over HTTP that put a result where the proxy might not look for one."""

from __future__ import annotations

import asyncio
import gzip
import json
from typing import Any

import pytest

from policyguard.adapters.mcp.settings import ProxyLimits
from tests.adapters.mcp.test_http import (
    HELLO,
    META,
    STREAM,
    Front,
    Play,
    answers,
    call,
    initialize,
    play,
    read_body,
    reply,
    result,
)

__all__ = ["play"]

SECRET = json.dumps(result("a sk-1")).encode()
GOOD = b"data: " + json.dumps(result("fine")).encode() + b"\n\n"


@pytest.mark.parametrize(
    "sent",
    [
        b"\xef\xbb\xbfdata: " + SECRET + b"\n\n",
        b"\xef\xbb\xbf\xef\xbb\xbfdata: " + SECRET + b"\n\n" + GOOD,
        "\u00ef\u00bb\u00bfdata: ".encode() + SECRET + b"\n\n" + GOOD,
        b"data: " + SECRET + b"\n\r\n" + GOOD,
        b"data: " + SECRET + b"\r\n\ndata: {}\n\n",
        b"event: message\rdata: " + SECRET + b"\r\r",
        b"\n\n\xef\xbb\xbfdata: " + SECRET + b"\n\n" + GOOD,
    ],
)
def test_no_form_of_a_stream_shows_what_is_redacted(play: Play, sent: bytes) -> None:
    async def story(front: Front) -> None:
        response = await front.ask(call())
        assert b"sk-1" not in response.body
        assert response.events
        assert front.open_calls == 0

    play(answers(STREAM + sent), story)


@pytest.mark.parametrize("status", ["200 OK", "202 Accepted", "400 Bad", "500 Broken"])
@pytest.mark.parametrize(
    "kind", ["text/plain", "text/plain; a=application/json", "application/json", "text/html"]
)
def test_no_other_body_shows_what_is_redacted(play: Play, status: str, kind: str) -> None:
    def send(body: bytes) -> bytes:
        head = f"HTTP/1.1 {status}\r\ncontent-type: {kind}\r\ncontent-length: {len(body)}\r\n\r\n"
        return head.encode() + body

    async def story(front: Front) -> None:
        for _ in range(3):
            response = await front.ask(call())
            assert b"sk-1" not in response.body
            assert response.status in (200, int(status[:3]))
            assert front.open_calls == 0

    odd = {"jsonrpc": "2.0", "id": None, "error": {"code": 1, "message": "sk-1"}}
    bodies = (SECRET, json.dumps(odd).encode(), b'{"why": "sk-1"}')
    play(answers(*map(send, bodies)), story)


@pytest.mark.parametrize("kind", ["text/plain", "text/plain; a=text/event-stream", ""])
def test_a_stream_by_another_name_is_no_stream(play: Play, kind: str) -> None:
    """Some clients read what a GET brings as events, whatever its type is."""
    body = b"data: " + SECRET + b"\n\n"
    head = f"HTTP/1.1 200 OK\r\ncontent-type: {kind}\r\ncontent-length: {len(body)}\r\n\r\n"

    async def story(front: Front) -> None:
        response = await front.ask(b"", method="GET", mcp_session_id="s1")
        assert response.status == 502
        assert b"sk-1" not in response.body

    play(answers(head.encode() + body), story)


def test_what_a_notification_brings_is_no_result(play: Play) -> None:
    note: dict[str, Any] = {
        "jsonrpc": "2.0",
        "method": "notifications/x",
        "params": {"_meta": META},
    }
    body = b'data: {"jsonrpc": "2.0", "id": 1, "result": {"content": []}}'
    head = f"HTTP/1.1 200 OK\r\ncontent-type: text/x\r\ncontent-length: {len(body)}\r\n\r\n"

    async def story(front: Front) -> None:
        response = await front.ask(note)
        assert (response.status, response.body) == (200, b"")

    play(answers(head.encode() + body), story)


def test_the_error_of_a_call_that_no_rule_edits_passes(play: Play) -> None:
    """So does that of another request, such as one of OAuth."""
    listed = {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {"_meta": META}}

    async def story(front: Front) -> None:
        response = await front.ask(listed)
        assert response.status == 401
        assert response.json == {"error": "invalid_token"}

    play(answers(reply({"error": "invalid_token"}, status="401 Unauthorized")), story)


def test_sessions_that_are_guessed_displace_no_real_one(play: Play) -> None:
    """A program on this machine may send thousands of ids; a call that runs keeps its place."""
    arrived, go_on = asyncio.Event(), asyncio.Event()

    async def handle(
        head: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        message = await read_body(head, reader)
        if message["method"] == "initialize":
            writer.write(HELLO)
        elif b"mcp-session-id: s1\r\n" in head.lower():
            arrived.set()
            await go_on.wait()
            writer.write(reply(result("a sk-1")))
        else:
            writer.write(reply({}, status="404 Not Found"))
        await writer.drain()

    async def story(front: Front) -> None:
        await front.ask(initialize())
        calling = asyncio.create_task(front.ask(call(), mcp_session_id="s1"))
        await arrived.wait()
        note = {"jsonrpc": "2.0", "method": "notifications/x"}
        for number in range(300):
            assert (await front.ask(note, mcp_session_id=f"guess {number}")).status == 404
        assert len(front.proxy._unconfirmed) == 256
        assert len(front.proxy._exchanges) == 1
        go_on.set()
        assert (await calling).json == result("a [key]")

    play(handle, story)


def test_a_session_goes_on_after_the_proxy_has_started_anew(play: Play) -> None:
    async def story(front: Front) -> None:
        assert (await front.ask(call(), mcp_session_id="s1")).json == result("ok")
        assert [*front.proxy._exchanges] == [("up", b"s1")]
        assert not front.proxy._unconfirmed

    play(answers(reply(result("ok"))), story)


@pytest.mark.parametrize("encoding", ["gzip, gzip", "br", "zstd", "x"])
def test_a_body_that_may_grow_without_a_bound_is_not_decoded(play: Play, encoding: str) -> None:
    body = reply(result("ok"), f"Content-Encoding: {encoding}")

    async def story(front: Front) -> None:
        response = await front.ask(call())
        assert "an encoding that was not asked for" in response.json["error"]["message"]
        assert front.open_calls == 0

    play(answers(body), story)


def test_a_compressed_body_is_read_within_its_bound(play: Play) -> None:
    async def story(front: Front) -> None:
        assert (await front.ask(call())).json == result("ok")
        long = await front.ask(call())
        assert "longer than 1000 bytes" in long.json["error"]["message"]

    def pack(text: str) -> bytes:
        data = gzip.compress(json.dumps(result(text)).encode())
        head = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-encoding: gzip\r\n"
        return f"{head}content-length: {len(data)}\r\n\r\n".encode() + data

    play(answers(pack("ok"), pack("x" * 10**6)), story, ProxyLimits(max_message=1000))
