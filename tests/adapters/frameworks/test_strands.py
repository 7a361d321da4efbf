"""Strands Agents in the acceptance story, and what is special about it."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

pytest.importorskip("strands", reason="runs with `make test-frameworks`")

from strands import Agent, tool
from strands.models import Model
from strands.tools.executors import ConcurrentToolExecutor

from policyguard import Guard
from policyguard.adapters.runs import Price
from policyguard.adapters.strands import PolicyguardHooks
from tests.adapters.frameworks.scripts import USAGE, Mode, Ran, Script, SubAgent, Tools, in_session
from tests.adapters.frameworks.story import Story


class ScriptedModel(Model):
    """Plays a script, and notes which tools it is offered."""

    def __init__(self, script: Script) -> None:
        self._script = script
        self.offered: list[set[str]] = []

    def update_config(self, **_: Any) -> None:
        """Nothing can be configured."""

    def get_config(self) -> dict[str, Any]:
        return {}

    async def structured_output(self, *_: Any, **__: Any) -> Any:
        raise NotImplementedError
        yield

    async def stream(self, messages: Any, tool_specs: Any = None, *_: Any, **__: Any) -> Any:
        self.offered.append({spec["name"] for spec in tool_specs or ()})
        answer = self._script[len(self.offered) - 1]
        yield {"messageStart": {"role": "assistant"}}
        if isinstance(answer, str):
            yield {"contentBlockStart": {"start": {}}}
            yield {"contentBlockDelta": {"delta": {"text": answer}}}
            yield {"contentBlockStop": {}}
        for number, call in enumerate(() if isinstance(answer, str) else answer):
            named = {"name": call.tool, "toolUseId": f"{len(self.offered)}-{number}"}
            yield {"contentBlockStart": {"start": {"toolUse": named}}}
            arguments = json.dumps(dict(call.args))
            yield {"contentBlockDelta": {"delta": {"toolUse": {"input": arguments}}}}
            yield {"contentBlockStop": {}}
        stop = "end_turn" if isinstance(answer, str) else "tool_use"
        yield {"messageStop": {"stopReason": stop}}
        usage = {
            "inputTokens": USAGE.input,
            "outputTokens": USAGE.output,
            "totalTokens": USAGE.input + USAGE.output,
            "cacheReadInputTokens": USAGE.cache_read,
            "cacheWriteInputTokens": USAGE.cache_write,
        }
        yield {"metadata": {"usage": usage, "metrics": {"latencyMs": 1}}}


def make_agent(
    hooks: list[PolicyguardHooks], script: Script, tools: Tools, **options: Any
) -> Agent:
    made: list[Any] = []
    for name, one in tools.items():
        if isinstance(one, SubAgent):
            agent = make_agent(hooks, [*one.script * 2], one.tools, name=name)
            made.append(agent.as_tool(name=name, description="Ask."))
        else:
            made.append(tool(name=name, description="A tool.")(one))
    return Agent(
        model=ScriptedModel(script),
        tools=made,
        hooks=[*hooks],
        callback_handler=None,
        tool_executor=ConcurrentToolExecutor(),
        **options,
    )


class Strands:
    name = "Strands"
    distribution = "strands-agents"
    modes: tuple[Mode, ...] = ("sync", "async", "stream")
    task = "input"
    estimates: tuple[Mode, ...] = ()
    usage = USAGE

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
        hooks = [PolicyguardHooks(guard, price=price)] if guard else []
        agent = make_agent(hooks, script, tools)

        def go(given: Any) -> Ran:
            with in_session(guard, run):
                result = self._invoke(agent, given, mode)
            names: dict[str, str] = {}
            results = []
            for message in agent.messages:
                for block in message["content"]:
                    if "toolUse" in block:
                        names[block["toolUse"]["toolUseId"]] = block["toolUse"]["name"]
                    if "toolResult" in block:
                        found = block["toolResult"]
                        text = "\n\n".join(part["text"] for part in found["content"])
                        results.append((names[found["toolUseId"]], text))
            ran = Ran(results, str(result).strip(), agent.model.offered)
            if result.stop_reason == "interrupt":
                ran.resume = lambda yes: go(
                    [
                        {"interruptResponse": {"interruptId": one.id, "response": yes}}
                        for one in result.interrupts
                    ]
                )
            return ran

        return go("go")

    def _invoke(self, agent: Any, given: Any, mode: Mode) -> Any:
        if mode == "sync":
            return agent(given)
        if mode == "async":
            return asyncio.run(agent.invoke_async(given))

        async def stream() -> Any:
            async for event in agent.stream_async(given):
                if "result" in event:
                    return event["result"]
            raise AssertionError

        return asyncio.run(stream())


class TestStrands(Story):
    framework = Strands()
