"""LlamaIndex in the acceptance story, and what is special about it."""

from __future__ import annotations

import asyncio
from contextlib import ExitStack
from typing import Any

import pytest

pytest.importorskip("llama_index.core", reason="runs with `make test-frameworks`")

from llama_index.core.agent.workflow import AgentWorkflow, FunctionAgent, ToolCallResult
from llama_index.core.base.llms.types import ChatMessage, ChatResponse, LLMMetadata, MessageRole
from llama_index.core.llms.function_calling import FunctionCallingLLM
from llama_index.core.tools import FunctionTool, ToolSelection
from llama_index.core.workflow import Context, HumanResponseEvent, InputRequiredEvent
from pydantic import Field

from policyguard import Guard
from policyguard.adapters.llama_index import PolicyguardAgent
from policyguard.adapters.runs import Price
from tests.adapters.frameworks.scripts import (
    USAGE,
    Call,
    Mode,
    Ran,
    Script,
    SubAgent,
    Tools,
    in_session,
)
from tests.adapters.frameworks.story import POLICY, Desk, Story

SPENT = {
    "input_tokens": USAGE.input,
    "output_tokens": USAGE.output,
    "cache_read_input_tokens": USAGE.cache_read,
    "cache_creation_input_tokens": USAGE.cache_write,
}


pytestmark = [  # of the framework itself
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:Skipping serialization"),
]


class ScriptedModel(FunctionCallingLLM):
    """Plays a script, and notes which tools it is offered."""

    script: list[Any]
    offered: list[set[str]] = Field(default_factory=list)

    @property
    def metadata(self) -> LLMMetadata:
        return LLMMetadata(is_function_calling_model=True, model_name="scripted")

    def _prepare_chat_with_tools(self, tools: Any, **_: Any) -> dict[str, Any]:
        return {"tools": tools}

    async def _answer(self, tools: Any) -> ChatResponse:
        self.offered = [*self.offered, {one.metadata.get_name() for one in tools}]
        answer = self.script[len(self.offered) - 1]
        text = answer if isinstance(answer, str) else ""
        message = ChatMessage(role=MessageRole.ASSISTANT, content=text)
        return ChatResponse(message=message, raw={"usage": SPENT})

    async def achat_with_tools(self, tools: Any, **_: Any) -> ChatResponse:
        return await self._answer(tools)

    async def astream_chat_with_tools(self, tools: Any, **_: Any) -> Any:
        async def stream() -> Any:
            yield await self._answer(tools)

        return stream()

    def get_tool_calls_from_response(self, *_: Any, **__: Any) -> list[ToolSelection]:
        number = len(self.offered)
        answer = self.script[number - 1]
        if isinstance(answer, str):
            return []
        return [
            ToolSelection(tool_id=f"{number}-{i}", tool_name=c.tool, tool_kwargs=dict(c.args))
            for i, c in enumerate(answer)
        ]

    def chat(self, *_: Any, **__: Any) -> Any:
        raise NotImplementedError

    achat = complete = acomplete = stream_chat = stream_complete = chat  # type: ignore[assignment]
    astream_chat = astream_complete = chat  # type: ignore[assignment]


def make_agent(
    guard: Guard | None, script: Script, tools: Tools, mode: Mode, price: Price | None = None
) -> Any:
    made: list[Any] = []
    for name, one in tools.items():
        fn: Any = one if not isinstance(one, SubAgent) else sub_agent(guard, one, mode)
        made.append(FunctionTool.from_defaults(fn, name=name, description="A tool."))
    fields = {
        "name": "clerk",
        "tools": made,
        "llm": ScriptedModel(script=script),
        "streaming": mode == "stream",
    }
    if guard is None:
        return FunctionAgent(**fields)
    return PolicyguardAgent(**fields, guard=guard, price=price)


def sub_agent(guard: Guard | None, sub: SubAgent, mode: Mode) -> Any:
    async def research(question: str) -> str:
        return str(await make_agent(guard, sub.script, sub.tools, mode).run(question))

    return research


class LlamaIndex:
    name = "LlamaIndex"
    distribution = "llama-index-core"
    modes: tuple[Mode, ...] = ("async", "stream")
    task = "question"
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
        agent = make_agent(guard, script, tools, mode, price)
        loop = asyncio.new_event_loop()
        results: list[tuple[str, str]] = []

        async def start() -> Any:
            return agent.run("go")

        async def listen(handler: Any) -> Any:
            async for event in handler.stream_events():
                if isinstance(event, ToolCallResult):
                    results.append((event.tool_name, event.tool_output.content))
                if isinstance(event, InputRequiredEvent):
                    return event
            return str(await handler)

        def go(handler: Any) -> Ran:
            found = loop.run_until_complete(listen(handler))
            ran = Ran(results, found if isinstance(found, str) else "", agent.llm.offered)
            if isinstance(found, str):
                block.close()
                loop.close()
                return ran

            def resume(yes: bool) -> Ran:
                answer = HumanResponseEvent(response=yes, call=found.call)

                async def send() -> None:
                    handler.ctx.send_event(answer)

                loop.run_until_complete(send())
                return go(handler)

            ran.resume = resume
            return ran

        block = ExitStack()  # the run sees it as it begins
        block.enter_context(in_session(guard, run))
        return go(loop.run_until_complete(start()))


class TestLlamaIndex(Story):
    framework = LlamaIndex()

    def test_an_agent_workflow_is_guarded(self) -> None:
        desk = Desk()
        calls: Script = [[Call("forbidden")], [Call("lookup", {"word": "a"})], "done"]
        with Guard.load(POLICY) as guard:
            agent = make_agent(guard, calls, desk.tools("forbidden", "lookup"), "async")

            async def run() -> str:
                return str(await AgentWorkflow(agents=[agent], root_agent="clerk").run("go"))

            assert asyncio.run(run()) == "done"
        assert desk.ran == ["lookup"]

    def test_a_context_goes_on(self) -> None:
        desk = Desk()
        calls: Script = [[Call("fetch", {"page": n})] for n in range(3)]
        with Guard.load(POLICY) as guard:

            async def run() -> None:
                agent = make_agent(guard, [*calls, "a", *calls, "b"], desk.tools("fetch"), "async")
                context = Context(agent)
                await agent.run("go", ctx=context)
                await agent.run("go", ctx=context)

            asyncio.run(run())
        assert desk.ran == ["fetch"] * 5
