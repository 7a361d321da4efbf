"""Pydantic AI in the acceptance story, and what is special about it."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

pytest.importorskip("pydantic_ai", reason="runs with `make test-frameworks`")

from pydantic_ai import Agent, DeferredToolRequests, DeferredToolResults, Tool
from pydantic_ai.messages import ModelResponse, TextPart, ToolCallPart, ToolReturnPart
from pydantic_ai.models.function import DeltaToolCall, FunctionModel
from pydantic_ai.usage import RequestUsage

from policyguard import Guard
from policyguard.adapters.pydantic_ai import PolicyguardCapability
from policyguard.adapters.runs import Price
from tests.adapters.frameworks.scripts import (
    USAGE,
    Mode,
    Ran,
    Script,
    SubAgent,
    Tools,
    open_event_loop,
)
from tests.adapters.frameworks.story import Story


class ScriptedModel:
    """Plays a script, and notes which tools it is offered."""

    def __init__(self, script: Script) -> None:
        self._script = script
        self._position = 0
        self.offered: list[set[str]] = []

    def _next(self, info: Any) -> Any:
        self.offered.append({tool.name for tool in info.function_tools})
        self._position += 1
        return self._script[self._position - 1]

    def answer(self, messages: Any, info: Any) -> ModelResponse:
        answer = self._next(info)
        parts: list[Any] = [TextPart(answer)] if isinstance(answer, str) else []
        if not isinstance(answer, str):
            parts = [
                ToolCallPart(call.tool, dict(call.args), f"{self._position}-{number}")
                for number, call in enumerate(answer)
            ]
        usage = RequestUsage(
            input_tokens=USAGE.input,
            output_tokens=USAGE.output,
            cache_read_tokens=USAGE.cache_read,
            cache_write_tokens=USAGE.cache_write,
        )
        return ModelResponse(parts=parts, usage=usage)

    async def stream(self, messages: Any, info: Any) -> Any:
        answer = self._next(info)
        if isinstance(answer, str):
            yield answer
            return
        for number, call in enumerate(answer):
            yield {
                number: DeltaToolCall(
                    name=call.tool,
                    json_args=json.dumps(dict(call.args)),
                    tool_call_id=f"{self._position}-{number}",
                )
            }


class PydanticAI:
    name = "Pydantic AI"
    distribution = "pydantic-ai-slim"
    modes: tuple[Mode, ...] = ("sync", "async", "stream")
    task = "task"
    estimates: tuple[Mode, ...] = ("stream",)
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
        model = ScriptedModel(script)
        agent = Agent(
            FunctionModel(model.answer, stream_function=model.stream),
            output_type=[str, DeferredToolRequests],
            tools=[make_tool(guard, name, tool) for name, tool in tools.items()],
            capabilities=[PolicyguardCapability(guard, price=price)] if guard else [],
        )

        def go(prompt: Any, **options: Any) -> Ran:
            output, messages = self._invoke(agent, prompt, mode, conversation_id=run, **options)
            results = [
                (part.tool_name, part.model_response_str(wrap_if_error=False))
                for message in messages
                for part in message.parts
                if isinstance(part, ToolReturnPart)
            ]
            if not isinstance(output, DeferredToolRequests):
                return Ran(results, output, model.offered)

            def resume(yes: bool) -> Ran:
                answers = DeferredToolResults(
                    approvals={call.tool_call_id: yes for call in output.approvals}
                )
                return go(None, message_history=messages, deferred_tool_results=answers)

            return Ran(results, "", model.offered, resume)

        return go("go")

    def _invoke(self, agent: Any, prompt: Any, mode: Mode, **options: Any) -> tuple[Any, Any]:
        if mode == "sync":
            with open_event_loop():
                result = agent.run_sync(prompt, **options)
            return result.output, result.all_messages()
        if mode == "async":
            result = asyncio.run(agent.run(prompt, **options))
            return result.output, result.all_messages()

        async def stream() -> tuple[Any, Any]:
            async with agent.run_stream(prompt, **options) as result:
                return await result.get_output(), result.all_messages()

        return asyncio.run(stream())


def make_tool(guard: Guard | None, name: str, tool: Any) -> Any:
    if not isinstance(tool, SubAgent):
        return Tool(tool, name=name)

    async def research(task: str) -> str:
        agent = Agent(
            FunctionModel(ScriptedModel(tool.script).answer),
            tools=[make_tool(guard, *named) for named in tool.tools.items()],
            capabilities=[PolicyguardCapability(guard)] if guard else [],
            name=name,
        )
        return (await agent.run(task)).output

    return Tool(research, name=name)


class TestPydanticAI(Story):
    framework = PydanticAI()
