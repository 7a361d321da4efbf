"""CrewAI in the acceptance story, and what is special about it."""

from __future__ import annotations

import asyncio
import json
import os
from importlib.util import find_spec
from typing import Any

import pytest

if find_spec("crewai") is None:
    pytest.skip("runs with `make test-frameworks`", allow_module_level=True)
os.environ |= {  # before it is imported
    "CREWAI_DISABLE_TELEMETRY": "true",
    "OTEL_SDK_DISABLED": "true",
    "CREWAI_TRACING_ENABLED": "false",
}
pytest.importorskip("crewai")  # without its own warnings

from crewai import Agent, BaseLLM, Crew, Task
from crewai.tools import tool
from pydantic import Field

from policyguard import Guard
from policyguard.adapters.crewai import PolicyguardCrew
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

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of the framework's own


class ScriptedModel(BaseLLM):
    """Plays a script, and notes which tools it is offered, and what it hears."""

    script: list[Any]
    offered: list[set[str]] = Field(default_factory=list)
    heard: list[Any] = Field(default_factory=list)

    def supports_function_calling(self) -> bool:
        return True

    def call(self, messages: Any, tools: Any = None, *_: Any, **__: Any) -> Any:
        self.heard = [*messages]
        self.offered = [*self.offered, {one["function"]["name"] for one in tools or ()}]
        number = len(self.offered)
        self._track_token_usage_internal(
            {
                "prompt_tokens": USAGE.input,
                "completion_tokens": USAGE.output,
                "total_tokens": USAGE.input + USAGE.output,
                "cached_prompt_tokens": USAGE.cache_read,
                "cache_creation_tokens": USAGE.cache_write,
            }
        )
        answer = self.script[number - 1]
        if isinstance(answer, str):
            return answer
        return [
            {
                "id": f"{number}-{index}",
                "type": "function",
                "function": {"name": call.tool, "arguments": json.dumps(dict(call.args))},
            }
            for index, call in enumerate(answer)
        ]

    async def acall(self, *args: Any, **kwargs: Any) -> Any:
        return self.call(*args, **kwargs)


def make_crew(
    guard: Guard | None, script: Script, tools: Tools, price: Price | None = None
) -> tuple[Crew, ScriptedModel]:
    made: list[Any] = []
    for name, one in tools.items():
        fn = one if not isinstance(one, SubAgent) else sub_agent(guard, one)
        made.append(tool(name)(documented(fn)))
    model = ScriptedModel(model="scripted", script=script)
    agent = Agent(role="clerk", goal="help", backstory="a clerk", llm=model, tools=made)
    task = Task(description="go", expected_output="an answer", agent=agent)
    if guard is None:
        return Crew(agents=[agent], tasks=[task]), model
    return PolicyguardCrew(agents=[agent], tasks=[task], guard=guard, price=price), model


def documented(fn: Any) -> Any:
    if fn.__doc__:
        return fn

    def wrapped(*args: Any, **kwargs: Any) -> Any:
        return fn(*args, **kwargs)

    wrapped.__doc__ = "A tool."
    wrapped.__annotations__ = {
        name: kind for name, kind in fn.__annotations__.items() if name != "return"
    }
    wrapped.__wrapped__ = fn
    return wrapped


def sub_agent(guard: Guard | None, sub: SubAgent) -> Any:
    def research(question: str) -> str:
        """Ask."""
        crew, _ = make_crew(guard, sub.script, sub.tools)
        return str(crew.kickoff())

    return research


class CrewAI:
    name = "CrewAI"
    distribution = "crewai"
    modes: tuple[Mode, ...] = ("sync", "async", "stream")
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
        crew, model = make_crew(guard, script, tools, price)
        with in_session(guard, run):
            text = self._kickoff(crew, mode)
        names = {
            one["id"]: one["function"]["name"]
            for message in model.heard
            for one in message.get("tool_calls") or ()
        }
        results = [
            (names[message["tool_call_id"]], message["content"])
            for message in model.heard
            if message["role"] == "tool"
        ]
        return Ran(results, text, model.offered)

    def _kickoff(self, crew: Crew, mode: Mode) -> str:
        if mode == "sync":
            return str(crew.kickoff())
        if mode == "async":
            return str(asyncio.run(crew.akickoff()))
        crew.stream = True
        streamed = crew.kickoff()
        for _ in streamed:
            pass
        return str(streamed.result)


class TestCrewAI(Story):
    framework = CrewAI()

    def test_copies_are_guarded(self) -> None:
        desk = Desk()
        calls: Script = [[Call("forbidden")], "done"]
        with Guard.load(POLICY) as guard:
            crew, _ = make_crew(guard, calls, desk.tools("forbidden"))
            assert isinstance(crew.copy(), PolicyguardCrew)
            crew.kickoff_for_each([{}])
        assert desk.ran == []
