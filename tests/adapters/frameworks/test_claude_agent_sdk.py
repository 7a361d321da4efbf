"""The Claude Agent SDK in the acceptance story: its own Claude Code, with a scripted model."""

from __future__ import annotations

import asyncio
import json
import queue
import threading
import uuid
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("claude_agent_sdk", reason="runs with `make test-frameworks`")

from claude_agent_sdk import (
    AgentDefinition,
    ClaudeAgentOptions,
    ClaudeSDKClient,
    PermissionResultAllow,
    PermissionResultDeny,
    ResultMessage,
    create_sdk_mcp_server,
    tool,
)

from policyguard import Guard
from policyguard.adapters.claude_agent_sdk import PolicyguardHooks
from policyguard.adapters.proof.script import Conversation, Step, ToolCall
from policyguard.adapters.proof.scripted_model import ScriptedModel
from policyguard.adapters.runs import Price, Usage
from tests.adapters.frameworks.scripts import Mode, Ran, Script, SubAgent, Tools
from tests.adapters.frameworks.story import Story

# The story's tools need no permission; the hook's *ask* asks all the same.
pytestmark = pytest.mark.filterwarnings("ignore:can_use_tool will not be invoked")

_SERVER = "mcp__desk__"


def make_steps(script: Script, tools: Tools) -> list[Step]:
    """Return a script as the model of the proofs plays it."""

    def call(one: Any) -> ToolCall:
        if not isinstance(tools.get(one.tool), SubAgent):
            return ToolCall(f"{_SERVER}{one.tool}", dict(one.args))
        prompt = f"you are {one.tool}"
        task = {"description": "ask", "prompt": prompt, "subagent_type": one.tool}
        return ToolCall("Agent", {**task, "run_in_background": False})

    return [one if isinstance(one, str) else [call(made) for made in one] for one in script]


def make_tool(name: str, fn: Any) -> Any:
    parameters = {key: kind for key, kind in fn.__annotations__.items() if key != "return"}
    kinds = {"str": str, "int": int}

    @tool(name, "A tool.", {key: kinds[str(kind)] for key, kind in parameters.items()})
    async def run(args: dict[str, Any]) -> dict[str, Any]:
        text = await asyncio.to_thread(fn, **args)
        return {"content": [{"type": "text", "text": text}]}

    return run


class ClaudeAgentSDK:
    name = "Claude Agent SDK"
    distribution = "claude-agent-sdk"
    modes: tuple[Mode, ...] = ("async", "stream")
    task = "prompt"
    estimates: tuple[Mode, ...] = ()
    usage = Usage("", input=1, output=1)  # what the model of the proofs says

    home: Path

    def __init__(self) -> None:
        self._known: set[str] = set()

    def run(
        self,
        guard: Guard | None,
        script: Script,
        tools: Tools,
        *,
        mode: Mode,
        run: str = "run",
        price: Price | None = None,
    ) -> Ran:
        """Run in a thread, which goes on when its user has answered."""
        reached: queue.Queue[Ran | Exception] = queue.Queue()
        answers: queue.Queue[bool] = queue.Queue()
        plan = _Plan(script, tools)

        def wait() -> Ran:
            ran = reached.get(timeout=60)
            if isinstance(ran, Exception):
                raise ran
            return ran

        def resume(yes: bool) -> Ran:
            answers.put(yes)
            return wait()

        async def can_use_tool(*_: Any) -> Any:
            reached.put(Ran([], "", [], resume))
            allowed = await asyncio.to_thread(answers.get, timeout=60)
            return PermissionResultAllow() if allowed else PermissionResultDeny(message="no")

        async def go() -> None:
            hooks = PolicyguardHooks(guard, price=price) if guard else None
            with ScriptedModel(plan.play).running() as model:
                options = ClaudeAgentOptions(
                    hooks=hooks,
                    can_use_tool=can_use_tool,
                    mcp_servers={"desk": create_sdk_mcp_server("desk", tools=plan.tools)},
                    allowed_tools=[*(f"{_SERVER}{name}" for name in tools), "Agent"],
                    agents=plan.agents,
                    setting_sources=[],
                    cwd=self.home,
                    include_partial_messages=mode == "stream",
                    env=self._environment(model.port),
                    **self._identity(run),
                )
                text = ""
                async with ClaudeSDKClient(options) as client:
                    await client.query("go")
                    async for message in client.receive_response():
                        if hooks is not None:
                            await hooks.count(message)
                        if isinstance(message, ResultMessage):
                            text = message.result or ""
            requests = [one for one in model.requests if one.get("tools")]
            main = [one for one in requests if not plan.is_sub_agents(one)]
            offered = [
                {tool["name"].removeprefix(_SERVER) for tool in one["tools"]} for one in main
            ]
            reached.put(Ran(read_results(main[-1]), text, offered))

        def work() -> None:
            try:
                asyncio.run(go())
            except Exception as error:  # noqa: BLE001 - raised in the test
                reached.put(error)

        threading.Thread(target=work, daemon=True).start()
        return wait()

    def _identity(self, run: str) -> dict[str, str]:
        """Return the options that begin a session, or resume it."""
        session = str(uuid.uuid5(uuid.NAMESPACE_OID, f"{self.home}{run}"))
        known = session in self._known
        self._known.add(session)
        return {"resume": session} if known else {"session_id": session}

    def _environment(self, port: int) -> dict[str, str]:
        return {
            "ANTHROPIC_BASE_URL": f"http://127.0.0.1:{port}",
            "ANTHROPIC_API_KEY": "none",
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
            "DISABLE_AUTOUPDATER": "1",
            "ENABLE_TOOL_SEARCH": "false",
            "HOME": str(self.home),
        }


class _Plan:
    """A script with its tools, as Claude Code and the model of the proofs take them."""

    def __init__(self, script: Script, tools: Tools) -> None:
        self._subs = {name: one for name, one in tools.items() if isinstance(one, SubAgent)}
        self.tools = [make_tool(name, tools[name]) for name in tools if name not in self._subs]
        self.agents = {
            name: AgentDefinition(description="Ask.", prompt="Look.") for name in self._subs
        }
        self._steps = make_steps(script, tools)
        self._first: int | None = None

    def play(self, said: Conversation) -> Step:
        for name, sub in self._subs.items():
            if f"you are {name}" in said.first:
                return make_steps(sub.script, sub.tools)[said.number]
        self._first = said.number if self._first is None else self._first
        return self._steps[said.number - self._first]  # before it, a resumed session's

    def is_sub_agents(self, request: Any) -> bool:
        first = json.dumps(request["messages"][0])
        return any(f"you are {name}" in first for name in self._subs)


def read_results(request: Any) -> list[tuple[str, str]]:
    """Return the results in a request, each with the notes that come after it."""
    names: dict[str, str] = {}
    results: list[tuple[str, str]] = []
    for message in request["messages"]:
        content = message["content"]
        for block in content if isinstance(content, list) else [{"text": content}]:
            if block.get("type") == "tool_use":
                names[block["id"]] = block["name"].removeprefix(_SERVER)
            elif block.get("type") == "tool_result":
                results.append((names[block["tool_use_id"]], show(block["content"])))
            elif results and "text" in block:
                tool_name, text = results.pop()
                results.append((tool_name, f"{text}\n\n{block['text']}"))
    return results


def show(content: Any) -> str:
    if isinstance(content, str):
        return content
    return "\n".join(block.get("text", "") for block in content or ())


class TestClaudeAgentSDK(Story):
    framework = ClaudeAgentSDK()

    @pytest.fixture(autouse=True)
    def _move_to_a_new_home(self, tmp_path: Path) -> None:
        self.framework.home = tmp_path
