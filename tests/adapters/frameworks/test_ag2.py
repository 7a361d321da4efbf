"""AG2 in the acceptance story, and what is special about it."""

from __future__ import annotations

import asyncio
import json
from contextlib import ExitStack
from typing import Any

import pytest

pytest.importorskip("ag2", reason="runs with `make test-frameworks`")

from ag2 import Agent, tool
from ag2.config import LLMClient, ModelConfig
from ag2.events import ModelMessage, ModelResponse, ToolCallEvent, ToolCallsEvent, ToolResultEvent
from ag2.events import Usage as Spent

from policyguard import Guard
from policyguard.adapters.ag2 import PolicyguardMiddleware
from policyguard.adapters.runs import Price
from tests.adapters.frameworks.scripts import USAGE, Mode, Ran, Script, SubAgent, Tools, in_session
from tests.adapters.frameworks.story import Story

SPENT = Spent(
    prompt_tokens=USAGE.input,
    completion_tokens=USAGE.output,
    cache_read_input_tokens=USAGE.cache_read,
    cache_creation_input_tokens=USAGE.cache_write,
)


class ScriptedModel(LLMClient, ModelConfig):
    """Plays a script, and notes which tools it is offered."""

    def __init__(self, script: Script) -> None:
        self._script = script
        self.offered: list[set[str]] = []

    def create(self) -> ScriptedModel:
        return self

    def copy(self, **_: Any) -> ScriptedModel:
        return self

    def create_files_client(self) -> Any:
        raise NotImplementedError

    @property
    def provider(self) -> Any:
        return "scripted"

    async def __call__(self, messages: Any, context: Any, **options: Any) -> ModelResponse:
        self.offered.append({one.function.name for one in options.get("tools", ())})
        number = len(self.offered)
        answer = self._script[number - 1]
        if isinstance(answer, str):
            return ModelResponse(ModelMessage(answer), usage=SPENT, model="scripted")
        calls = [
            ToolCallEvent(call.tool, id=f"{number}-{i}", arguments=json.dumps(dict(call.args)))
            for i, call in enumerate(answer)
        ]
        return ModelResponse(tool_calls=ToolCallsEvent(calls), usage=SPENT, model="scripted")


def make_agent(
    middleware: list[Any], script: Script, tools: Tools, name: str, **options: Any
) -> tuple[Agent, ScriptedModel]:
    made: list[Any] = []
    for called, one in tools.items():
        if isinstance(one, SubAgent):
            agent, _ = make_agent(middleware, one.script * 2, one.tools, called)
            made.append(agent.as_tool(name=called, description="Ask."))
        else:
            made.append(tool(one, name=called, description="A tool."))
    model = ScriptedModel(script)
    return Agent(name, tools=made, config=model, middleware=middleware, **options), model


class AG2:
    name = "AG2"
    distribution = "ag2"
    modes: tuple[Mode, ...] = ("async",)
    task = "objective"
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
        loop = asyncio.new_event_loop()
        asked: list[asyncio.Future[str]] = []

        async def answer(_: Any) -> str:
            asked.append(loop.create_future())
            return await asked[-1]

        middleware = [PolicyguardMiddleware(guard, price=price)] if guard else []
        agent, model = make_agent(middleware, script, tools, "clerk", hitl_hook=answer)
        block = ExitStack()
        block.enter_context(in_session(guard, run))

        async def start() -> Any:
            return asyncio.create_task(agent.ask("go"))

        async def wait(task: Any) -> None:
            while not task.done() and not any(not one.done() for one in asked):
                await asyncio.wait([task], timeout=0.01)

        async def read(reply: Any) -> list[tuple[str, str]]:
            return [
                (event.name, "".join(str(part.content) for part in event.result.parts))
                for event in await reply.history.get_events()
                if isinstance(event, ToolResultEvent)
            ]

        def go(task: Any) -> Ran:
            loop.run_until_complete(wait(task))
            if task.done():
                reply = task.result()
                ran = Ran(loop.run_until_complete(read(reply)), str(reply.body), model.offered)
                block.close()
                loop.close()
                return ran

            def resume(yes: bool) -> Ran:
                loop.call_soon(asked[-1].set_result, "yes" if yes else "no")
                loop.run_until_complete(asyncio.sleep(0))
                return go(task)

            return Ran([], "", model.offered, resume)

        return go(loop.run_until_complete(start()))


class TestAG2(Story):
    framework = AG2()
