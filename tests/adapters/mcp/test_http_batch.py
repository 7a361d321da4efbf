"""Batches over HTTP, before a server that gets one message at a time."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from policyguard.adapters.mcp.settings import ProxyLimits
from tests.adapters.mcp.test_http import (
    HELLO,
    STREAM,
    Front,
    Handler,
    Play,
    Response,
    call,
    initialize,
    play,
    read_body,
    reply,
    result,
)

__all__ = ["play"]

SESSION = {"mcp-session-id": "s1"}


def old_call(tool: str = "read", id_: int = 1, **arguments: Any) -> dict[str, Any]:
    return call(tool, id_, {}, **arguments)


def serves(seen: list[Any]) -> Handler:
    """Return a handler that answers by the message."""

    async def handle(
        head: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        message = await read_body(head, reader)
        seen.append(message)
        method, id_ = message["method"], message.get("id")
        if method == "initialize":
            writer.write(HELLO)
        elif id_ is None:
            writer.write(b"HTTP/1.1 202 Accepted\r\ncontent-length: 0\r\n\r\n")
        elif method == "ping":
            writer.write(reply({"jsonrpc": "2.0", "id": id_, "result": {}}))
        elif message["params"]["name"] == "stream":
            note = b'{"jsonrpc": "2.0", "method": "notifications/progress", "params": {}}'
            body = result("a sk-2", id_)
            data = b"data: " + note + b"\n\ndata: " + str(body).replace("'", '"').encode()
            writer.write(STREAM + data + b"\n\n")
            writer.close()
        elif message["params"]["name"] == "refused":
            writer.write(reply({"why": "x"}, status="500 Broken"))
        elif message["params"]["name"] != "slow":
            writer.write(reply(result("a sk-1", id_)))
        await writer.drain()

    return handle


def test_each_message_of_a_batch_is_judged(play: Play) -> None:
    seen: list[Any] = []
    note = {"jsonrpc": "2.0", "method": "notifications/x"}
    ping = {"jsonrpc": "2.0", "id": 5, "method": "ping"}
    calls = [
        old_call("read", 1),
        old_call("drop", 2),
        old_call("stream", 3),
        old_call("refused", 4),
    ]

    async def story(front: Front) -> None:
        await front.ask(initialize())
        response = await front.ask([*calls, note, ping], **SESSION)
        assert response.headers["content-type"] == "text/event-stream"
        events = response.events
        assert [one.get("method") for one in events if "id" not in one] == [
            "notifications/progress"
        ]
        by_id = {one["id"]: one for one in events if "id" in one}
        assert by_id.keys() == {1, 2, 3, 4, 5}
        assert by_id[1] == result("a [key]", 1)
        assert by_id[2]["result"]["isError"] is True
        assert by_id[3] == result("a [key]", 3)
        assert "status 500" in by_id[4]["error"]["message"]
        assert by_id[5]["result"] == {}
        assert front.open_calls == 0
        asked = [one["params"]["name"] for one in seen if one["method"] == "tools/call"]
        assert sorted(asked) == ["read", "refused", "stream"]

    play(serves(seen), story)


def test_more_calls_than_run_at_a_time(play: Play) -> None:
    async def story(front: Front) -> None:
        await front.ask(initialize())
        batch = [old_call(id_=number, text=str(number)) for number in range(5)]
        assert len((await front.ask(batch, **SESSION)).events) == 5

    play(serves([]), story, ProxyLimits(max_calls=1))


def test_a_cancellation_in_a_batch(play: Play) -> None:
    """The call may wait for its slot then, or run; here another call has the only slot."""
    seen: list[Any] = []
    cancelled = {"requestId": 2}

    async def story(front: Front) -> None:
        await front.ask(initialize())
        note = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": cancelled}
        response = await front.ask([old_call("slow", 1), old_call("read", 2), note], **SESSION)
        (late,) = response.events  # of the slow one, whose time is over
        assert late["id"] == 1
        assert late["result"]["isError"] is True
        asked = [one["params"]["name"] for one in seen if one["method"] == "tools/call"]
        assert asked == ["slow"]
        assert front.open_calls == 0

    play(serves(seen), story, ProxyLimits(max_calls=1))


def test_a_batch_without_requests_has_no_body(play: Play) -> None:
    async def story(front: Front) -> None:
        response = await front.ask([{"jsonrpc": "2.0", "method": "notifications/x"}] * 2)
        assert (response.status, response.body) == (202, b"")

    play(serves([]), story)


def test_a_client_that_leaves_cancels_all_calls_of_its_batch(play: Play) -> None:
    seen: list[Any] = []

    async def story(front: Front) -> None:
        response = Response()
        batch = [old_call("stop", number) for number in (1, 2)]
        asking = asyncio.create_task(front.ask(batch, response))
        while len(seen) < 2:
            await asyncio.sleep(0.01)
        assert front.open_calls == 2
        response.leave.set()
        await asking
        assert front.open_calls == 0

    async def handle(
        head: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        seen.append(await read_body(head, reader))
        await reader.read()

    play(handle, story)


def test_a_client_that_is_not_authorised_learns_of_it(play: Play) -> None:
    async def handle(
        head: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        await read_body(head, reader)
        writer.write(reply({"why": "x"}, "WWW-Authenticate: Bearer", status="401 No"))

    async def story(front: Front) -> None:
        response = await front.ask([old_call(id_=1), old_call(id_=2)])
        assert response.status == 401
        assert response.headers["www-authenticate"] == "Bearer"
        assert "status 401" in response.json["error"]["message"]
        assert front.open_calls == 0

    play(handle, story)


@pytest.mark.parametrize(
    ("batch", "headers", "words"),
    [
        ([old_call()], {"mcp-protocol-version": "2025-06-18"}, "2025-06-18 of the protocol has no"),
        ([call()], {}, "2026-07-28 of the protocol has no batches"),
        ([initialize(), old_call()], {}, "`initialize` cannot be part of a batch"),
        ([old_call(id_=number) for number in range(321)], {}, "at most 320 messages"),
    ],
)
def test_batches_that_are_refused(play: Play, batch: Any, headers: Any, words: str) -> None:
    async def story(front: Front) -> None:
        response = await front.ask(batch, **headers)
        assert response.status == 400
        assert words in response.json["error"]["message"]

    play(serves([]), story)
