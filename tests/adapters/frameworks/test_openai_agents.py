"""The OpenAI Agents SDK in the acceptance story, and what is special about it."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

pytest.importorskip("agents", reason="runs with `make test-frameworks`")

from agents import Agent, Runner, RunState, ToolCallItem, ToolCallOutputItem, function_tool
from agents.run_config import RunConfig
from agents.testing import ScriptedModel, assistant_message, function_call
from agents.usage import Usage
from openai.types.responses.response_usage import InputTokensDetails

from policyguard import Guard
from policyguard.adapters.openai_agents import PolicyguardAgent
from policyguard.adapters.runs import Price
from policyguard.model.event import Admitted
from tests.adapters.frameworks.scripts import (
    USAGE,
    Call,
    Mode,
    Ran,
    Script,
    SubAgent,
    Tools,
    in_session,
    open_event_loop,
)
from tests.adapters.frameworks.story import Desk, Story


def make_model(script: Script) -> ScriptedModel:
    steps: list[Any] = []
    for message, answer in enumerate(script):
        calls = [] if isinstance(answer, str) else answer
        steps.append(
            [
                function_call(call.tool, dict(call.args), call_id=f"{message}-{number}")
                for number, call in enumerate(calls)
            ]
            or [assistant_message(str(answer))]
        )
    details = InputTokensDetails(
        cached_tokens=USAGE.cache_read, cache_write_tokens=USAGE.cache_write
    )
    usage = Usage(
        requests=1,
        input_tokens=USAGE.input,
        output_tokens=USAGE.output,
        total_tokens=USAGE.input + USAGE.output,
        input_tokens_details=details,
    )
    return ScriptedModel(steps, default_usage=usage)


def make_agent(
    guard: Guard | None, script: Script, tools: Tools, price: Price | None = None
) -> Agent[Any]:
    made = [
        make_agent(guard, [*tool.script * 2], tool.tools).as_tool(name, "Ask.")
        if isinstance(tool, SubAgent)
        else function_tool(tool, name_override=name)
        for name, tool in tools.items()
    ]
    given: dict[str, Any] = {"name": "agent", "model": make_model(script), "tools": made}
    if guard is None:
        return Agent(**given)
    return PolicyguardAgent(**given, guard=guard, price=price)


class OpenAIAgents:
    name = "OpenAI Agents SDK"
    distribution = "openai-agents"
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
        agent = make_agent(guard, script, tools, price)

        def go(given: Any) -> Ran:
            with in_session(guard, run):
                result = self._invoke(agent, given, mode)
            names = {
                item.raw_item.call_id: item.raw_item.name
                for item in result.new_items
                if isinstance(item, ToolCallItem)
            }
            results = [
                (names[item.raw_item["call_id"]], item.output)
                for item in result.new_items
                if isinstance(item, ToolCallOutputItem)
            ]
            offered = [{tool.name for tool in call.tools} for call in agent.model.calls]
            ran = Ran(results, result.final_output, offered)
            if result.interruptions:
                state = result.to_state()

                def resume(yes: bool) -> Ran:
                    for item in result.interruptions:
                        state.approve(item) if yes else state.reject(item)
                    return go(state)

                ran.resume = resume
            return ran

        return go("go")

    def _invoke(self, agent: Agent[Any], given: Any, mode: Mode) -> Any:
        config = RunConfig(tracing_disabled=True)
        if mode == "sync":
            with open_event_loop():
                return Runner.run_sync(agent, given, run_config=config, max_turns=20)
        if mode == "async":
            return asyncio.run(Runner.run(agent, given, run_config=config, max_turns=20))

        async def stream() -> Any:
            result = Runner.run_streamed(agent, given, run_config=config, max_turns=20)
            async for _ in result.stream_events():
                pass
            return result

        return asyncio.run(stream())


class TestOpenAIAgents(Story):
    framework = OpenAIAgents()

    def test_a_tool_with_defaults_is_not_asked_about(self, guard: Guard) -> None:
        """The SDK asks about such a tool if a function of its own decides on approvals."""

        def lookup(word: str, limit: int = 3) -> str:
            return f"{word}: {limit} words"

        script: Script = [[Call("lookup", {"word": "cat"})], "done"]
        ran = self.framework.run(guard, script, {"lookup": lookup}, mode="async")
        assert ran.resume is None
        assert ran.results[0][1].startswith("cat: 3 words")

    def test_a_run_without_a_block_has_a_session_of_its_own(self, guard: Guard) -> None:
        sessions: list[str] = []
        guard.on(lambda event: sessions.append(event.session), Admitted)
        for _ in range(2):
            agent = make_agent(guard, [[Call("note")], "done"], {"note": lambda: "ok"})
            asyncio.run(Runner.run(agent, "go", run_config=RunConfig(tracing_disabled=True)))
        assert len(set(sessions)) == 2

    def test_a_stored_run_goes_on_in_the_session_of_its_block(
        self, guard: Guard, desk: Desk
    ) -> None:
        script: Script = [[Call("deploy", {"target": "shop"})], "done"]
        agent = make_agent(guard, script, desk.tools("deploy"))
        config = RunConfig(tracing_disabled=True)

        async def main() -> str:
            with guard.session("run"):
                result = await Runner.run(agent, "go", run_config=config)
            stored = result.to_state().to_json()
            state = await RunState.from_json(agent, stored)
            for item in state.get_interruptions():
                state.approve(item)
            with guard.session("run"):
                return (await Runner.run(agent, state, run_config=config)).final_output

        assert asyncio.run(main()) == "done"
        assert desk.ran == ["deploy"]
