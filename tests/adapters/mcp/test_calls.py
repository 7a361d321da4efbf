"""What the policy does to calls and results, between a client and a server that are lists."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any

import pytest

from policyguard import Guard
from policyguard.adapters.mcp.call_sessions import LocalSessions
from policyguard.adapters.mcp.exchange import Exchange
from policyguard.adapters.mcp.guarded_server import GuardedServer
from policyguard.adapters.mcp.messages import (
    CLIENT_CAPABILITIES,
    CLIENT_INFO,
    PROTOCOL_VERSION,
    as_judged,
    decode,
)
from policyguard.adapters.mcp.pending import Passage
from policyguard.adapters.mcp.runs import Runs
from policyguard.adapters.mcp.settings import ProxyLimits

MODERN = {
    PROTOCOL_VERSION: "2026-07-28",
    CLIENT_INFO: {"name": "tester", "version": "1"},
    CLIENT_CAPABILITIES: {"elicitation": {}},
}

Message = dict[str, Any]


class Peers:
    """A client and a server with a policy between them; `sent` is what the client was sent."""

    def __init__(
        self, policy: str, folder: Path, limits: ProxyLimits | None = None, name: str = "srv"
    ) -> None:
        file = folder / "policy.yaml"
        file.write_text(f"policyguard: 1\nname: p\n{policy}")
        self.guard = Guard.load(file)
        self.sessions = LocalSessions(self.guard)
        self.limits = limits or ProxyLimits()
        self.runs = Runs(self.sessions, idle=60)
        self.server = GuardedServer(name, self.sessions, self.limits)
        self.sent: list[Message] = []
        self.exchange = self.connect(self.server)
        self._ids = iter(range(1, 10000))

    def connect(self, server: GuardedServer) -> Exchange:
        exchange = Exchange(server, self.runs)
        exchange.send = self.sent.append
        return exchange

    async def pass_up(self, message: Message) -> Passage:
        passage = self.exchange.from_client(message, self.sent.append)
        return passage if isinstance(passage, Passage) else await passage

    async def request(self, method: str, params: Message, answer: Message) -> Message:
        """Send a request; the server gives this `result` or `error`. Return the response."""
        id_ = next(self._ids)
        passage = await self.pass_up(
            {"jsonrpc": "2.0", "id": id_, "method": method, "params": params}
        )
        if passage.to_client is not None:
            return passage.to_client
        assert passage.to_server is not None
        response = self.exchange.from_server({"jsonrpc": "2.0", "id": id_, **answer})
        assert response is not None
        return response

    async def open(self, **capabilities: Any) -> Message:
        """Shake hands."""
        params = {
            "protocolVersion": "2025-11-25",
            "clientInfo": {"name": "tester"},
            "capabilities": capabilities,
        }
        answer = {"result": {"capabilities": {"tools": {}}}}
        return await self.request("initialize", params, answer)

    async def call(self, tool: str, result: Message | None = None, **members: Any) -> Message:
        """Call a tool that gives this result; return what the client gets."""
        result = text_result("done") if result is None else result
        response = await self.request("tools/call", {"name": tool, **members}, {"result": result})
        return response.get("result", response)  # type: ignore[no-any-return]

    async def list(self, *tools: Message, meta: Message | None = None) -> list[Message]:
        """List tools; return those that the client sees."""
        answer = {"result": {"tools": [*tools]}}
        response = await self.request("tools/list", {"_meta": meta} if meta else {}, answer)
        return response["result"]["tools"]  # type: ignore[no-any-return]


def text_result(text: str, **members: Any) -> Message:
    return {"content": [{"type": "text", "text": text}], **members}


Story = Callable[[Peers], Coroutine[Any, Any, None]]


@pytest.fixture
def play(tmp_path: Path) -> Iterator[Callable[..., None]]:
    """Plays a story between peers with this policy."""
    opened: list[Peers] = []

    def run(policy: str, story: Story, **options: Any) -> None:
        peers = Peers(policy, tmp_path, **options)
        opened.append(peers)
        asyncio.run(story(peers))

    yield run
    for peers in opened:
        peers.guard.close()


REFUSED = "rules:\n  no: {tools: [drop], message: never, instead: archive it}\n"


@pytest.mark.parametrize(
    ("data", "passed"),
    [
        (b'{"method":"tools/call", "params":{"a":1}}', None),
        (b'{"method":"x","a":1,"a":2}', None),
        (
            b'{"method":"tools/call","method":"ping","params":{"name":"drop"}}',
            b'{"method":"ping","params":{"name":"drop"}}',
        ),
        (
            b'{"method":"tools/call","params":{"name":"t","arguments":{"path":"/a","path":"/b"}}}',
            b'{"method":"tools/call","params":{"name":"t","arguments":{"path":"/b"}}}',
        ),
        (
            b'{"method":"tools/call","params":{"name":"safe"},"params":{"name":"drop"}}',
            b'{"method":"tools/call","params":{"name":"drop"}}',
        ),
    ],
)
def test_a_call_is_passed_on_as_it_was_judged(data: bytes, passed: bytes | None) -> None:
    (message,) = decode(data)
    assert as_judged(data, message) == (data if passed is None else passed)


def test_what_is_no_message_of_a_server_is_dropped(play: Any) -> None:
    async def story(peers: Peers) -> None:
        await peers.open()
        for odd in ({}, {"jsonrpc": "2.0"}, {"method": 5}, {"a": None}):
            assert peers.exchange.from_server(odd) is None
        told = {"jsonrpc": "2.0", "method": "notifications/message"}
        assert peers.exchange.from_server(told) is told

    play("", story)


@pytest.mark.parametrize("meta", [{}, MODERN])
def test_a_refusal_is_a_tool_error(play: Any, meta: Message) -> None:
    async def story(peers: Peers) -> None:
        result = await peers.call("drop", _meta=meta)
        assert result["isError"] is True
        assert result["content"][0]["text"].startswith("`mcp__srv__drop` was not run.")
        assert result["structuredContent"]["rule"] == "rules/no"
        assert "never" in result["structuredContent"]["message"]
        assert result["_meta"]["policyguard"]["status"] == "blocked"
        assert result.get("resultType") == ("complete" if meta else None)
        assert await peers.call("keep", _meta=meta) == text_result("done")

    play(REFUSED, story)


def test_advice_reaches_clients_that_show_structured_content_only(play: Any) -> None:
    async def story(peers: Peers) -> None:
        result = await peers.call("add", text_result("3", structuredContent={"total": 3}))
        assert result["content"][0]["text"] == "3"
        assert "check it" in result["content"][1]["text"]
        assert result["structuredContent"]["total"] == 3
        assert "check it" in result["structuredContent"]["policyguard"]["advice"]

    play("rules:\n  a: {tools: [add], effect: advise, message: check it}\n", story)


def test_closed_schemas_are_opened_for_notes(play: Any) -> None:
    async def story(peers: Peers) -> None:
        closed = {"type": "object", "properties": {"a": {}}, "additionalProperties": False}
        tools = [{"name": "closed", "outputSchema": closed}, {"name": "open", "outputSchema": {}}]
        seen = await peers.list(*tools)
        assert seen[0]["outputSchema"]["properties"].keys() == {"a", "policyguard"}
        assert seen[1] == tools[1]

    play("", story)


SECRETS = """\
result_rules:
  keys: {tools: [read], finds: [key], effect: redact}
  all: {tools: [vault], effect: withhold, message: it stays there}
patterns: {key: "sk-[0-9]+"}
"""


def test_results_are_redacted_and_withheld(play: Any) -> None:
    async def story(peers: Peers) -> None:
        given = text_result("a sk-123", structuredContent={"k": "sk-123"}, resultType="complete")
        result = await peers.call("read", given)
        assert "sk-" not in str(result)
        assert result["structuredContent"] == {"k": "[key]"}
        assert result["resultType"] == "complete"
        result = await peers.call("vault", text_result("all", structuredContent={"all": 1}))
        assert "it stays there" in result["content"][0]["text"]
        assert "structuredContent" not in result
        assert "all" not in result
        error = {"error": {"code": -1, "message": "bad key sk-123", "data": {"key": "sk-123"}}}
        response = await peers.request("tools/call", {"name": "read"}, error)
        assert response["error"] == {"code": -1, "message": "bad key [key]"}

    play(SECRETS, story)


def test_tools_whose_results_are_edited_have_no_output_schema(play: Any) -> None:
    """Clients hold results against the schema, and a withheld one would be an error."""

    async def story(peers: Peers) -> None:
        schema = {"type": "object"}
        tools = [{"name": name, "outputSchema": schema} for name in ("read", "vault", "other")]
        seen = await peers.list(*tools)
        assert [tool for tool in seen if "outputSchema" in tool] == [tools[2]]

    play(SECRETS, story)


def test_a_late_result_is_redacted_too(play: Any) -> None:
    async def story(peers: Peers) -> None:
        call = {"jsonrpc": "2.0", "id": 900, "method": "tools/call", "params": {"name": "read"}}
        await peers.pass_up(call)
        cancel = {"method": "notifications/cancelled", "params": {"requestId": 900}}
        assert (await peers.pass_up(cancel)).to_server == cancel
        result = {"jsonrpc": "2.0", "id": 900, "result": text_result("sk-123")}
        assert "sk-123" not in str(peers.exchange.from_server(result))

    play(SECRETS, story)


LOOPS = "limits: {default: {repeat: {max: 2, refuse: tool}}}\n"


def test_disabled_tools_leave_the_list(play: Any) -> None:
    async def story(peers: Peers) -> None:
        hello = await peers.open()
        assert hello["result"]["capabilities"]["tools"] == {"listChanged": True}
        tools = [{"name": "poll"}, {"name": "other"}]
        assert await peers.list(*tools) == tools
        for _ in range(3):
            await peers.call("poll")
        assert [note["method"] for note in peers.sent] == ["notifications/tools/list_changed"]
        assert await peers.list(*tools) == [{"name": "other"}]

    play(LOOPS, story)


def test_subscribers_learn_of_disabled_tools(play: Any) -> None:
    async def story(peers: Peers) -> None:
        params = {"_meta": MODERN, "notifications": {"toolsListChanged": True}}
        listen = {"jsonrpc": "2.0", "id": "l1", "method": "subscriptions/listen", "params": params}
        await peers.pass_up(listen)
        for _ in range(3):
            await peers.call("poll", _meta=MODERN)
        assert peers.sent == [
            {
                "jsonrpc": "2.0",
                "method": "notifications/tools/list_changed",
                "params": {"_meta": {"io.modelcontextprotocol/subscriptionId": "l1"}},
            }
        ]

    play(LOOPS, story)


def test_tools_that_the_policy_never_allows_are_not_listed(play: Any) -> None:
    async def story(peers: Peers) -> None:
        assert await peers.list({"name": "drop"}, {"name": "keep"}) == [{"name": "keep"}]

    play(REFUSED, story)


def test_nothing_is_declared_that_the_policy_does_not_do(play: Any) -> None:
    async def story(peers: Peers) -> None:
        assert (await peers.open())["result"]["capabilities"] == {"tools": {}}

    play(REFUSED, story)


def test_a_policy_that_observes_changes_nothing(play: Any) -> None:
    async def story(peers: Peers) -> None:
        hello = await peers.open()
        assert hello["result"]["capabilities"] == {"tools": {}}
        schema = {"type": "object", "additionalProperties": False}
        tools = [{"name": name, "outputSchema": schema} for name in ("read", "vault", "drop")]
        assert await peers.list(*tools) == tools
        for tool in ("drop", "poll", "poll", "poll", "vault"):
            given = text_result("sk-123", structuredContent={"n": 1})
            assert await peers.call(tool, given) is given

    play(f"mode: observe\n{SECRETS}{REFUSED}{LOOPS}", story)


ASKS = "rules:\n  a: {tools: [send], effect: ask, message: a person must agree}\n"


@pytest.mark.parametrize(
    ("answer", "runs"),
    [
        ({"action": "accept", "content": {"approve": True}}, True),
        ({"action": "accept", "content": {"approve": False}}, False),
        ({"action": "accept"}, False),
        ({"action": "decline"}, False),
        ({"action": "cancel"}, False),
    ],
)
def test_a_form_asks_the_user(play: Any, answer: Message, runs: bool) -> None:
    async def story(peers: Peers) -> None:
        await peers.open(elicitation={})
        calling = asyncio.create_task(peers.call("send", arguments={"to": "ann"}))
        while not peers.sent:
            await asyncio.sleep(0)
        form = peers.sent.pop()
        assert form["method"] == "elicitation/create"
        assert form["params"]["message"] == (
            "The agent wants to call mcp__srv__send with:\n"
            '  to: "ann"\n'
            "The policy asks first:\n"
            "- rules/a: a person must agree\n"
            "Yes lets this call run, once. No tells the agent that you refused it."
        )
        reply = await peers.pass_up({"jsonrpc": "2.0", "id": form["id"], "result": answer})
        assert reply == Passage()
        result = await calling
        assert (result == text_result("done")) is runs
        assert result.get("isError", False) is not runs
        says_no = answer["action"] == "decline" or answer.get("content") == {"approve": False}
        assert ("denied by" in result["content"][0]["text"]) is says_no

    play(ASKS, story)


def test_a_form_shows_all_arguments_without_secrets(play: Any) -> None:
    async def story(peers: Peers) -> None:
        await peers.open(elicitation={})
        args = {"path": "safe" + " " * 3000, "key": "sk-12345", "cmd": "rm -rf /", "n\n": {"a": 1}}
        calling = asyncio.create_task(peers.call("send", arguments=args))
        while not peers.sent:
            await asyncio.sleep(0)
        form = peers.sent.pop()
        lines = form["params"]["message"].splitlines()
        assert lines[1].startswith('  path: "safe  ')
        assert lines[1].endswith("… and 2,806 more characters")
        assert lines[2:5] == ['  key: "[key]"', '  cmd: "rm -rf /"', '  n : {"a": 1}']
        closed = {"action": "cancel"}
        await peers.pass_up({"jsonrpc": "2.0", "id": form["id"], "result": closed})
        await calling

    play(f"{ASKS}patterns: {{key: 'sk-[0-9]+'}}\njournal: {{redact: [key]}}\n", story)


def test_beside_an_edited_result_nothing_passes(play: Any) -> None:
    """What is passed on is what was judged: no member beside it."""

    async def story(peers: Peers) -> None:
        await peers.open()
        params = {"name": "read", "arguments": {}}
        await peers.pass_up({"jsonrpc": "2.0", "id": 5, "method": "tools/call", "params": params})
        response = {"jsonrpc": "2.0", "id": 5, "result": text_result("fine"), "x": "sk-12345"}
        passed = peers.exchange.from_server(response)
        assert passed == {"jsonrpc": "2.0", "id": 5, "result": text_result("fine")}
        assert passed is not response, "it is written anew: of a repeated member the last is left"

    play(SECRETS, story)


def test_a_client_that_rejects_the_form(play: Any) -> None:
    async def story(peers: Peers) -> None:
        await peers.open(elicitation={})
        calling = asyncio.create_task(peers.call("send"))
        while not peers.sent:
            await asyncio.sleep(0)
        error = {"code": -32601, "message": "no such method"}
        await peers.pass_up({"jsonrpc": "2.0", "id": peers.sent.pop()["id"], "error": error})
        assert (await calling)["isError"] is True

    play(ASKS, story)


def test_a_client_without_forms_gets_the_refusal(play: Any) -> None:
    async def story(peers: Peers) -> None:
        await peers.open()
        result = await peers.call("send")
        assert "needs an approval" in result["content"][0]["text"]
        assert peers.sent == []

    play(ASKS, story)


def test_a_call_that_asks_is_cancelled(play: Any) -> None:
    async def story(peers: Peers) -> None:
        await peers.open(elicitation={})
        calling = asyncio.create_task(peers.call("send"))
        while not peers.sent:
            await asyncio.sleep(0)
        form = peers.sent.pop()
        cancel = {"method": "notifications/cancelled", "params": {"requestId": 2}}
        assert await peers.pass_up(cancel) == Passage()
        with pytest.raises(asyncio.CancelledError):
            await calling
        assert peers.sent[0]["method"] == "notifications/cancelled"
        assert peers.sent[0]["params"]["requestId"] == form["id"]

    play(ASKS, story)


def asked(result: Message) -> str:
    """Return the state of a result that asks for input."""
    assert result["resultType"] == "input_required"
    assert result["inputRequests"]["policyguard"]["method"] == "elicitation/create"
    return str(result["requestState"])


YES = {"policyguard": {"action": "accept", "content": {"approve": True}}}


def test_without_sessions_the_result_asks(play: Any) -> None:
    async def story(peers: Peers) -> None:
        call = {"arguments": {"to": "ann", "n": 1}, "_meta": MODERN}
        state = asked(await peers.call("send", **call))
        again = {"arguments": {"n": 1, "to": "ann"}, "_meta": MODERN}
        result = await peers.call("send", **again, inputResponses=YES, requestState=state)
        assert result == text_result("done")
        result = await peers.call("send", **call, inputResponses=YES, requestState=state)
        assert result["isError"] is True
        assert "was used before" in result["content"][0]["text"]

    play(ASKS, story)


def test_an_answer_is_good_for_its_call_only(play: Any) -> None:
    async def story(peers: Peers) -> None:
        state = asked(await peers.call("send", arguments={"to": "ann"}, _meta=MODERN))
        other = {"arguments": {"to": "eve"}, "inputResponses": YES, "_meta": MODERN}
        for forged in (state, state[:-1] + ("A" if state[-1] != "A" else "B"), "pg1.x.y", "pg1."):
            assert (await peers.call("send", **other, requestState=forged))["isError"] is True
        no = {"policyguard": {"action": "decline"}}
        same = {"arguments": {"to": "ann"}, "_meta": MODERN}
        result = await peers.call("send", **same, inputResponses=no, requestState=state)
        assert "denied by the user of" in result["content"][0]["text"]

    play(ASKS, story)


def test_what_the_server_does_not_need_is_taken_out(play: Any) -> None:
    async def story(peers: Peers) -> None:
        state = asked(await peers.call("send", _meta=MODERN))
        params = {"name": "send", "_meta": MODERN, "requestState": state, "inputResponses": YES}
        passage = await peers.pass_up(
            {"jsonrpc": "2.0", "id": 77, "method": "tools/call", "params": params}
        )
        assert passage.to_server is not None
        assert passage.to_server["params"] == {"name": "send", "_meta": MODERN}

    play(ASKS, story)


def test_a_server_that_asks_is_counted_once(play: Any) -> None:
    """The client repeats the call with its input: that is the same call."""

    async def story(peers: Peers) -> None:
        need = {"resultType": "input_required", "inputRequests": {"q": {}}, "requestState": "own"}
        first = await peers.call("buy", need, _meta=MODERN)
        assert first["inputRequests"] == {"q": {}}
        assert first["requestState"] != "own"
        given = {"q": {"action": "accept"}}
        params = {
            "name": "buy",
            "_meta": MODERN,
            "requestState": first["requestState"],
            "inputResponses": given,
        }
        passage = await peers.pass_up(
            {"jsonrpc": "2.0", "id": 500, "method": "tools/call", "params": params}
        )
        assert passage.to_server is not None
        assert passage.to_server["params"]["requestState"] == "own"
        assert passage.to_server["params"]["inputResponses"] == given
        done = {"jsonrpc": "2.0", "id": 500, "result": text_result("bought")}
        assert peers.exchange.from_server(done) is done
        assert (await peers.call("buy", _meta=MODERN))["isError"] is True

    play("budgets:\n  b: {tools: [buy], calls: 1}\n", story)


META = """\
outcomes:
  meta: {strip: ["internal/*"], harness: [x/infra], tokens: [x/tokens], cost: [x/cost]}
budgets:
  t: {tokens: 100, per: session}
"""


def test_metadata_is_read_and_stripped(play: Any) -> None:
    async def story(peers: Peers) -> None:
        meta = {"internal/trace": 1, "x/infra": True, "kept": 2, "x/tokens": 60}
        result = await peers.call("a", text_result("x", _meta=meta))
        assert result["_meta"] == {"kept": 2, "x/tokens": 60}
        result = await peers.call("b", text_result("x", _meta={"x/infra": True}))
        assert "_meta" not in result
        odd: Any
        for odd in (-1000, "9", True, float("nan"), float("inf"), None):
            await peers.call("c", text_result("x", _meta={"x/tokens": odd}))
        assert "isError" not in await peers.call("d", text_result("x", _meta={"x/tokens": 40.0}))
        assert (await peers.call("e"))["structuredContent"]["rule"] == "budgets/t"

    play(META, story)


def test_flags_of_the_loop_brake_on_the_wire(play: Any) -> None:
    """Six results that bring nothing new switch the tool off; the harness's flag does not count."""

    async def story(peers: Peers) -> None:
        meta = {"ai.nimblebrain/non-advancing": True, "ai.nimblebrain/infra-error": True}
        for number in range(6):
            result = await peers.call("look", text_result(str(number), _meta=meta))
            assert "ai.nimblebrain/infra-error" not in result["_meta"]
        assert (await peers.call("look"))["isError"] is True
        assert await peers.list({"name": "look"}) == []

    play("extends: [loop-brake]\n", story)


def test_budgets_of_clients_and_servers(play: Any) -> None:
    policy = """\
budgets:
  per_client: {calls: 3, per: agent}
  web: {servers: [web], calls: 1, per: global}
"""

    async def story(peers: Peers) -> None:
        def meta(client: str) -> Message:
            return {**MODERN, CLIENT_INFO: {"name": client}}

        for _ in range(3):
            assert "isError" not in await peers.call("x", _meta=meta("one"))
        refused = await peers.call("x", _meta=meta("one"))
        assert refused["structuredContent"]["rule"] == "budgets/per_client"
        peers.exchange = peers.connect(GuardedServer("web", peers.sessions, peers.limits))
        assert "isError" not in await peers.call("x", _meta=meta("two"))
        refused = await peers.call("x", _meta=meta("three"))
        assert refused["structuredContent"]["rule"] == "budgets/web"

    play(policy, story)


def test_hints_of_the_server_are_passed_on(play: Any) -> None:
    async def story(peers: Peers) -> None:
        await peers.list({"name": "wipe", "annotations": {"destructiveHint": True}})
        assert (await peers.call("wipe"))["isError"] is True
        assert "isError" not in await peers.call("other")

    policy = "rules:\n  d: {when: 'has(call.hints.destructive) && call.hints.destructive'}\n"
    play(policy, story)


TASK = {"taskId": "t1", "status": "working"}


@pytest.mark.parametrize("created", [{"task": TASK}, {"resultType": "task", **TASK}])
def test_the_result_of_a_task_is_its_calls(play: Any, created: Message) -> None:
    async def story(peers: Peers) -> None:
        assert await peers.call("read", created) == created
        params = {"taskId": "t1"}
        working = {"result": {"taskId": "t1", "status": "working"}}
        assert (await peers.request("tasks/get", params, working))["result"] == working["result"]
        if "task" in created:
            answer = {"result": text_result("sk-123")}
            response = await peers.request("tasks/result", params, answer)
            assert response["result"]["content"][0]["text"] == "[key]"
        else:
            ended = {"taskId": "t1", "status": "completed", "result": text_result("sk-123")}
            response = await peers.request("tasks/get", params, {"result": ended})
            assert response["result"]["result"]["content"][0]["text"] == "[key]"
            assert response["result"]["status"] == "completed"
        assert "sk-123" not in str(response)
        assert not next(iter(peers.sessions.list())).in_flight

    play(SECRETS, story)


@pytest.mark.parametrize("status", ["failed", "cancelled"])
def test_a_task_that_fails_is_a_call_that_failed(play: Any, status: str) -> None:
    async def story(peers: Peers) -> None:
        for number in range(2):
            task = {"taskId": f"t{number}", "status": "working"}
            await peers.call("run", {"task": task}, arguments={"n": number})
            note = {**task, "status": status, "statusMessage": "disk full"}
            message = {"jsonrpc": "2.0", "method": "notifications/tasks/status", "params": note}
            assert peers.exchange.from_server(message) is message
        refused = await peers.call("run", arguments={"n": 2})
        assert refused.get("isError", False) is (status == "failed")

    play("rules:\n  f: {tools: [run], when: session.failures == 2}\n", story)


def test_a_call_whose_time_is_over(play: Any) -> None:
    async def story(peers: Peers) -> None:
        call = {"jsonrpc": "2.0", "id": 5, "method": "tools/call", "params": {"name": "slow"}}
        await peers.pass_up(call)
        assert peers.exchange.timeout_of(call) == 2.0
        passage = peers.exchange.time_out(call)
        assert passage.to_client is not None
        assert "longer than 2 s" in passage.to_client["result"]["content"][0]["text"]
        assert passage.to_server is not None
        assert passage.to_server["params"]["requestId"] == 5
        late = {"jsonrpc": "2.0", "id": 5, "result": text_result("late")}
        assert peers.exchange.from_server(late) is None

    play("limits: {default: {timeout: 2s}}\n", story)


def test_a_name_that_is_no_text(play: Any) -> None:
    async def story(peers: Peers) -> None:
        response = await peers.request("tools/call", {"name": ["drop"]}, {})
        assert response["error"]["code"] == -32602
        refused = await peers.call("keep", arguments=[1])
        assert refused["isError"] is True

    play(REFUSED, story)


def test_calls_of_one_model_message_have_ids_of_their_own(play: Any) -> None:
    """The client's id of a call names it in the journal; one that comes twice does not."""

    async def story(peers: Peers) -> None:
        for number in range(2):
            meta = {"claudecode/toolUseId": "toolu_1"}
            await peers.call("x", arguments={"n": number}, _meta=meta)
        assert peers.sessions.has_seen(next(iter(peers.sessions.list())).session, "mcp:toolu_1")
        assert next(iter(peers.sessions.list())).calls == 2

    play("", story)


def test_runs_are_what_clients_name(play: Any) -> None:
    async def story(peers: Peers) -> None:
        for thread in ("a", "a", "b"):
            await peers.call("x", _meta={**MODERN, "threadId": thread, "sessionId": "all"})
        await peers.call("x", _meta=MODERN)
        ids = [session.session for session in peers.sessions.list()]
        assert len(ids) == 3
        assert {"mcp/tester/a", "mcp/tester/b"} < set(ids)

    play("", story)


def test_an_error_that_asks_to_open_an_address_is_no_failure(play: Any) -> None:
    async def story(peers: Peers) -> None:
        error = {"code": -32042, "message": "log in", "data": {"elicitations": []}}
        for _ in range(5):
            response = await peers.request("tools/call", {"name": "x"}, {"error": error})
            assert response["error"] == error
        assert next(iter(peers.sessions.list())).calls == 0

    play("limits: {default: {failures: {max: 2}}}\n", story)


def test_a_result_that_cannot_be_checked_is_withheld(play: Any, monkeypatch: Any) -> None:
    async def story(peers: Peers) -> None:
        def fail(*_: Any, **__: Any) -> None:
            raise OSError("disk full")

        monkeypatch.setattr(peers.sessions, "record", fail)
        result = await peers.call("x", text_result("secret"))
        assert "secret" not in str(result)
        assert "disk full" in result["content"][0]["text"]
        monkeypatch.setattr(peers.sessions, "check", fail)
        assert (await peers.call("x"))["isError"] is True

    play("", story)


SECRET = [{"type": "text", "text": "sk-123"}]


@pytest.mark.parametrize(
    "response",
    [
        {"result": {"content": SECRET}, "error": {"code": 1, "message": "x"}},
        {"result": {"content": SECRET}, "error": None},
        {"result": {"content": SECRET, "resultType": "input_required"}},
        {"result": {"content": SECRET, "resultType": "task", "taskId": "t"}},
        {"result": {"content": SECRET, "task": {"taskId": "t", "status": "working"}}},
        {"result": {"structuredContent": {"a": "sk-123"}, "resultType": "input_required"}},
        {"result": "sk-123"},
        {"result": SECRET},
        {"result": None, "error": {"code": 1, "message": "sk-123"}},
        {},
    ],
)
def test_a_server_cannot_evade_the_rules_on_results(play: Any, response: Message) -> None:
    async def story(peers: Peers) -> None:
        seen = await peers.request("tools/call", {"name": "read"}, response)
        assert "sk-123" not in str(seen)
        assert not next(iter(peers.sessions.list())).in_flight

    play(SECRETS, story)


@pytest.mark.parametrize(
    ("method", "result"),
    [
        ("tasks/result", {"content": SECRET}),
        ("tasks/get", {"taskId": "x", "status": "completed", "result": {"content": SECRET}}),
        ("tasks/get", {"taskId": "x", "status": "completed", "content": SECRET}),
    ],
)
def test_the_result_of_an_unknown_task_is_withheld(play: Any, method: str, result: Message) -> None:
    async def story(peers: Peers) -> None:
        seen = await peers.request(method, {"taskId": "x"}, {"result": result})
        assert "sk-123" not in str(seen)
        status = {"result": {"taskId": "x", "status": "working"}}
        assert (await peers.request("tasks/get", {"taskId": "x"}, status))["result"]

    play(SECRETS, story)


def test_the_status_of_a_task_that_shows_a_result(play: Any) -> None:
    async def story(peers: Peers) -> None:
        await peers.call("read", {"task": TASK})
        status = {"result": {"taskId": "t1", "status": "working", "content": SECRET}}
        seen = await peers.request("tasks/get", {"taskId": "t1"}, status)
        assert "sk-123" not in str(seen)

    play(SECRETS, story)


def test_a_message_that_is_request_and_response_is_dropped(play: Any) -> None:
    async def story(peers: Peers) -> None:
        call = {"jsonrpc": "2.0", "id": 9, "method": "tools/call", "params": {"name": "read"}}
        await peers.pass_up(call)
        both = {"jsonrpc": "2.0", "id": 9, "method": "ping", "result": text_result("sk-123")}
        assert peers.exchange.from_server(both) is None

    play(SECRETS, story)


def test_a_call_without_an_id_does_not_reach_the_server(play: Any) -> None:
    async def story(peers: Peers) -> None:
        call = {"jsonrpc": "2.0", "method": "tools/call", "params": {"name": "drop"}}
        assert await peers.pass_up(call) == Passage()

    play(REFUSED, story)
