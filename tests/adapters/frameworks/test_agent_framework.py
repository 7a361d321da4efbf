"""Microsoft Agent Framework in the acceptance story, and what is special about it."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

pytest.importorskip("agent_framework", reason="runs with `make test-frameworks`")

from agent_framework import (
    Agent,
    BaseChatClient,
    ChatMiddlewareLayer,
    ChatResponse,
    ChatResponseUpdate,
    Content,
    FunctionInvocationLayer,
    Message,
    UsageDetails,
    tool,
)

from policyguard import Guard
from policyguard.adapters.agent_framework import PolicyguardMiddleware
from policyguard.adapters.runs import Price
from tests.adapters.frameworks.scripts import USAGE, Mode, Ran, Script, SubAgent, Tools, in_session
from tests.adapters.frameworks.story import Story

SPENT = UsageDetails(
    input_token_count=USAGE.input,
    output_token_count=USAGE.output,
    cache_read_input_token_count=USAGE.cache_read,
    cache_creation_input_token_count=USAGE.cache_write,
)


class ScriptedClient(FunctionInvocationLayer, ChatMiddlewareLayer, BaseChatClient):
    """Plays a script, and notes which tools it is offered, and what it hears."""

    def __init__(self, script: Script) -> None:
        super().__init__()
        self._script = script
        self.offered: list[set[str]] = []
        self.heard: list[Message] = []

    def _inner_get_response(
        self, *, messages: Any, stream: bool = False, options: Any = None, **_: Any
    ) -> Any:
        self.heard = [*messages]
        self.offered.append({one.name for one in (options or {}).get("tools") or ()})
        number = len(self.offered)
        answer = self._script[number - 1]
        contents = (
            [Content.from_text(answer)]
            if isinstance(answer, str)
            else [
                Content.from_function_call(
                    call_id=f"{number}-{index}", name=call.tool, arguments=dict(call.args)
                )
                for index, call in enumerate(answer)
            ]
        )
        if stream:
            return self._build_response_stream(self._updates(contents))
        message = Message(role="assistant", contents=contents)

        async def respond() -> ChatResponse:
            return ChatResponse(messages=[message], model="scripted", usage_details=SPENT)

        return respond()

    async def _updates(self, contents: list[Content]) -> Any:
        for content in [*contents, Content.from_usage(SPENT)]:
            yield ChatResponseUpdate(role="assistant", contents=[content], model="scripted")


def make_agent(middleware: list[Any], script: Script, tools: Tools, name: str) -> Agent:
    made: list[Any] = []
    for called, one in tools.items():
        if isinstance(one, SubAgent):
            agent = make_agent(middleware, [*one.script * 2], one.tools, called)
            made.append(agent.as_tool(name=called, description="Ask."))
        else:
            made.append(
                tool(name=called, description="A tool.", approval_mode="never_require")(one)
            )
    return Agent(client=ScriptedClient(script), tools=made, middleware=middleware, name=name)


class AgentFramework:
    name = "Microsoft Agent Framework"
    distribution = "agent-framework-core"
    modes: tuple[Mode, ...] = ("async", "stream")
    task = "task"
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
        middleware = PolicyguardMiddleware(guard, price=price) if guard else []
        agent = make_agent(middleware, script, tools, "clerk")
        thread = agent.create_session()

        def go(given: Any) -> Ran:
            with in_session(guard, run):
                response = asyncio.run(self._invoke(agent, given, thread, mode))
            contents = [
                content
                for message in [*agent.client.heard, *response.messages]
                for content in message.contents
            ]
            names = {one.call_id: one.name for one in contents if one.type == "function_call"}
            results = {
                one.call_id: (names[one.call_id], str(one.result))
                for one in contents
                if one.type == "function_result"
            }
            ran = Ran([*results.values()], response.text, agent.client.offered)
            if asked := response.user_input_requests:
                ran.resume = lambda yes: go(
                    Message("user", [one.to_function_approval_response(yes) for one in asked])
                )
            return ran

        return go("go")

    async def _invoke(self, agent: Any, given: Any, thread: Any, mode: Mode) -> Any:
        if mode == "async":
            return await agent.run(given, session=thread)
        stream = agent.run(given, session=thread, stream=True)
        async for _ in stream:
            pass
        return await stream.get_final_response()


class TestAgentFramework(Story):
    framework = AgentFramework()
