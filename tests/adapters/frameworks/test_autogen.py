"""AutoGen in the acceptance story, and what is special about it."""

from __future__ import annotations

import asyncio
import json
from typing import Any, ClassVar

import pytest

pytest.importorskip("autogen_agentchat", reason="runs with `make test-frameworks`")

from autogen_agentchat.agents import AssistantAgent
from autogen_agentchat.base import TaskResult
from autogen_agentchat.messages import ToolCallExecutionEvent
from autogen_agentchat.tools import AgentTool
from autogen_core import FunctionCall
from autogen_core.models import ChatCompletionClient, CreateResult, RequestUsage
from autogen_core.tools import FunctionTool

from policyguard import Guard
from policyguard.adapters.autogen import PolicyguardAgent
from policyguard.adapters.runs import Price
from tests.adapters.frameworks.scripts import USAGE, Mode, Ran, Script, SubAgent, Tools, in_session
from tests.adapters.frameworks.story import Story

SPENT = RequestUsage(USAGE.input, USAGE.output)


class ScriptedClient(ChatCompletionClient):
    """Plays a script, and notes which tools it is offered."""

    model_info: ClassVar = {
        "vision": False,
        "function_calling": True,
        "json_output": False,
        "family": "unknown",
        "structured_output": False,
    }
    capabilities = model_info

    def __init__(self, script: Script) -> None:
        self._script = script
        self.offered: list[set[str]] = []

    async def create(self, messages: Any, *, tools: Any = (), **_: Any) -> CreateResult:
        self.offered.append({one["name"] for one in tools})
        number = len(self.offered)
        answer = self._script[number - 1]
        content: Any = answer
        if not isinstance(answer, str):
            content = [
                FunctionCall(
                    id=f"{number}-{index}", name=call.tool, arguments=json.dumps(dict(call.args))
                )
                for index, call in enumerate(answer)
            ]
        return CreateResult(finish_reason="stop", content=content, usage=SPENT, cached=False)

    async def create_stream(self, messages: Any, **options: Any) -> Any:
        yield await self.create(messages, **options)

    async def close(self) -> None:
        """Nothing is open."""

    def actual_usage(self) -> RequestUsage:
        return SPENT

    total_usage = actual_usage

    def count_tokens(self, *_: Any, **__: Any) -> int:
        return 1

    remaining_tokens = count_tokens


def make_agent(
    guard: Guard | None, script: Script, tools: Tools, name: str, **options: Any
) -> tuple[Any, ScriptedClient]:
    made: list[Any] = []
    for called, one in tools.items():
        if isinstance(one, SubAgent):
            agent, _ = make_agent(guard, one.script * 2, one.tools, called, **options)
            made.append(AgentTool(agent))
        else:
            made.append(FunctionTool(one, name=called, description="A tool."))
    client = ScriptedClient(script)
    if guard is None:
        options.pop("price", None)
    kind = AssistantAgent if guard is None else PolicyguardAgent
    guarded = {} if guard is None else {"guard": guard}
    agent = kind(name, client, tools=made, max_tool_iterations=30, **guarded, **options)
    return agent, client


class AutoGen:
    name = "AutoGen"
    distribution = "autogen-agentchat"
    modes: tuple[Mode, ...] = ("async", "stream")
    task = "task"
    estimates: tuple[Mode, ...] = ()
    usage = USAGE._replace(cache_read=0, cache_write=0)

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
        agent, client = make_agent(
            guard, script, tools, "clerk", price=price, model_client_stream=mode == "stream"
        )
        with in_session(guard, run):
            result = asyncio.run(self._invoke(agent, mode))
        results = [
            (one.name, one.content)
            for message in result.messages
            if isinstance(message, ToolCallExecutionEvent)
            for one in message.content
        ]
        return Ran(results, str(result.messages[-1].content), client.offered)

    async def _invoke(self, agent: Any, mode: Mode) -> TaskResult:
        if mode == "async":
            return await agent.run(task="go")
        async for event in agent.run_stream(task="go"):
            if isinstance(event, TaskResult):
                return event
        raise AssertionError


class TestAutoGen(Story):
    framework = AutoGen()
