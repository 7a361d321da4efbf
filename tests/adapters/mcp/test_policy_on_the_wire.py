"""The policy over both transports and in both eras, with a client and a server of the SDK."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anyio
import mcp_types as types
import pytest
from mcp import Client, StdioServerParameters

from tests.adapters.mcp.observed import MODERN
from tests.adapters.mcp.processes import serve_proxy, stdio_proxy

POLICY = """\
policyguard: 1
name: wire
limits: {default: {repeat: {max: 2, refuse: tool, same: call_and_result}}}
budgets:
  adds: {tools: [add], calls: 4}
rules:
  ask: {tools: [echo], effect: ask, when: "call.args.text == 'ask'"}
  note: {tools: [add], effect: advise, message: an even better note}
result_rules:
  keys: {tools: [echo], finds: [key], effect: redact}
patterns: {key: "sk-[0-9]+"}
"""

Target = str | StdioServerParameters


@pytest.fixture
def target(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Target]:
    file = tmp_path / "policy.yaml"
    file.write_text(POLICY)
    if request.param == "stdio":
        yield stdio_proxy(str(file))
        return
    with serve_proxy(str(file), request.getfixturevalue("http_server")) as address:
        yield address


@pytest.mark.parametrize(
    ("target", "mode"),
    [
        ("stdio", "legacy"),
        ("http", MODERN),
        pytest.param("stdio", MODERN, marks=pytest.mark.slow),
        pytest.param("http", "legacy", marks=pytest.mark.slow),
    ],
    indirect=["target"],
)
def test_the_policy_holds(target: Target, mode: str) -> None:
    anyio.run(_story, target, mode)


async def _story(target: Target, mode: str) -> None:
    forms: list[str] = []
    notes: list[str] = []
    answers = ["accept", "decline"]

    async def on_form(_: Any, params: Any) -> types.ElicitResult:
        forms.append(params.message)
        action: Any = answers.pop(0)
        content = {"approve": True} if action == "accept" else None
        return types.ElicitResult(action=action, content=content)

    async def on_message(message: Any) -> None:
        notes.append(type(getattr(message, "root", message)).__name__)

    async with Client(
        target, mode=mode, elicitation_callback=on_form, message_handler=on_message, cache=None
    ) as client:
        names = {tool.name for tool in (await client.list_tools()).tools}
        assert {"echo", "add", "list_cancelled"} <= names
        asked = await client.call_tool("echo", {"text": "ask"})
        assert asked.content[0].text == "ask"
        assert len(forms) == 1
        declined = await client.call_tool("echo", {"text": "ask"})
        assert declined.is_error
        assert "denied by the user of" in declined.content[0].text
        assert len(forms) == 2
        assert '  text: "ask"\nThe policy asks first:\n- rules/ask\nYes lets' in forms[0]
        again = await client.call_tool("echo", {"text": "ask"})
        assert "denied by the user of" in again.content[0].text
        assert len(forms) == 2, "a no holds until the user's next message"
        hidden = await client.call_tool("echo", {"text": "sk-12345"})
        assert (hidden.content[0].text, hidden.structured_content) == ("[key]", {"result": "[key]"})
        noted = await client.call_tool("add", {"a": 1, "b": 2})
        assert noted.structured_content["total"] == 3
        assert "an even better note" in noted.structured_content["policyguard"]["advice"]
        if mode == MODERN:
            async with client.listen(tools_list_changed=True) as subscription:
                await _loop(client)
                assert "ToolsListChanged" in str(await anext(aiter(subscription)))
        else:
            await anyio.sleep(0.2)  # its stream of notifications opens after the handshake
            await _loop(client)
            with anyio.fail_after(20):
                while "ToolListChangedNotification" not in notes:
                    await anyio.sleep(0.02)
        names = {tool.name for tool in (await client.list_tools()).tools}
        assert "list_cancelled" not in names
        assert "echo" in names


async def _loop(client: Client) -> None:
    for number in range(3):
        looped = await client.call_tool("list_cancelled", {})
        assert looped.is_error is (number == 2)
