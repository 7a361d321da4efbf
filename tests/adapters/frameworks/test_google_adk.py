"""Google's Agent Development Kit in the acceptance story, and what is special about it."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

pytest.importorskip("google.adk", reason="runs with `make test-frameworks`")

from google.adk.agents import LlmAgent
from google.adk.agents.run_config import RunConfig, StreamingMode
from google.adk.apps import App
from google.adk.models import BaseLlm, LlmResponse
from google.adk.runners import InMemoryRunner
from google.adk.tools import FunctionTool
from google.adk.tools.agent_tool import AgentTool
from google.genai import types

from policyguard import Guard
from policyguard.adapters.google_adk import PolicyguardPlugin
from policyguard.adapters.runs import Price
from tests.adapters.frameworks.scripts import USAGE, Mode, Ran, Script, SubAgent, Tools
from tests.adapters.frameworks.story import Story

# ADK's own `AgentTool` passes plugins on by the argument that ADK deprecates.
pytestmark = pytest.mark.filterwarnings("ignore:The `plugins` argument:DeprecationWarning")

_CONFIRM = "adk_request_confirmation"


class ScriptedModel(BaseLlm):
    """Plays a script, and notes which tools it is offered."""

    script: list[Any]
    offered: list[set[str]]

    async def generate_content_async(self, llm_request: Any, stream: bool = False) -> Any:
        self.offered.append(
            {
                function.name
                for tool in llm_request.config.tools or ()
                for function in tool.function_declarations or ()
            }
        )
        answer = self.script[len(self.offered) - 1]
        parts = (
            [types.Part(text=answer)]
            if isinstance(answer, str)
            else [
                types.Part.from_function_call(name=call.tool, args=dict(call.args))
                for call in answer
            ]
        )
        usage = types.GenerateContentResponseUsageMetadata(
            prompt_token_count=USAGE.input,
            candidates_token_count=USAGE.output,
            cached_content_token_count=USAGE.cache_read,
        )
        content = types.Content(role="model", parts=parts)
        yield LlmResponse(content=content, usage_metadata=usage)


def make_agent(name: str, script: Script, tools: Tools) -> LlmAgent:
    made: list[Any] = []
    for tool_name, tool in tools.items():
        if isinstance(tool, SubAgent):
            made.append(AgentTool(make_agent(tool_name, [*tool.script * 2], tool.tools)))
        else:
            made.append(FunctionTool(tool))
    return LlmAgent(
        name=name, model=ScriptedModel(model="scripted", script=script, offered=[]), tools=made
    )


class GoogleADK:
    name = "Google ADK"
    distribution = "google-adk"
    modes: tuple[Mode, ...] = ("sync", "async", "stream")
    task = "request"
    estimates: tuple[Mode, ...] = ()
    usage = USAGE._replace(cache_write=0)  # Gemini's API does not name them

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
        agent = make_agent("agent", script, tools)
        plugins = [PolicyguardPlugin(guard, price=price)] if guard else []
        runner = InMemoryRunner(app=App(name="app", root_agent=agent, plugins=plugins))
        asyncio.run(
            runner.session_service.create_session(app_name="app", user_id="ann", session_id=run)
        )
        answers: dict[str, tuple[str, str]] = {}

        def go(message: Any) -> Ran:
            texts, question = [""], None
            for event in self._invoke(runner, message, mode, run):
                for part in event.content.parts if event.content else ():
                    if part.function_response and part.function_response.name != _CONFIRM:
                        response = part.function_response
                        answers[response.id] = response.name, show(response.response)
                    if part.function_call and part.function_call.name == _CONFIRM:
                        question = part.function_call.id
                    if part.text:
                        texts.append(part.text)
            ran = Ran([*answers.values()], texts[-1], agent.model.offered)
            if question is not None:
                ran.resume = lambda yes: go(
                    types.Content(
                        role="user",
                        parts=[
                            types.Part(
                                function_response=types.FunctionResponse(
                                    id=question, name=_CONFIRM, response={"confirmed": yes}
                                )
                            )
                        ],
                    )
                )
            return ran

        return go(types.UserContent("go"))

    def _invoke(self, runner: Any, message: Any, mode: Mode, run: str) -> list[Any]:
        options = {"user_id": "ann", "session_id": run, "new_message": message}
        if mode == "sync":
            return list(runner.run(**options))
        streaming = StreamingMode.SSE if mode == "stream" else StreamingMode.NONE

        async def collect() -> list[Any]:
            config = RunConfig(streaming_mode=streaming)
            return [event async for event in runner.run_async(**options, run_config=config)]

        return asyncio.run(collect())


def show(response: Any) -> str:
    """Return a response as text: ADK's models read JSON."""
    return (
        response["result"] if [*response] == ["result"] else "\n".join(map(str, response.values()))
    )


class TestGoogleADK(Story):
    framework = GoogleADK()
