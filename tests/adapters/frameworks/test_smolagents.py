"""smolagents in the acceptance story, and what is special about it."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Any, ClassVar

import pytest

pytest.importorskip("smolagents", reason="runs with `make test-frameworks`")

from smolagents import CodeAgent, FinalAnswerStep, Tool, ToolCallingAgent
from smolagents.agents import ToolOutput
from smolagents.models import (
    ChatMessage,
    ChatMessageToolCall,
    ChatMessageToolCallFunction,
    MessageRole,
    Model,
    TokenUsage,
)

from policyguard import Guard
from policyguard.adapters.runs import Price
from policyguard.adapters.smolagents import guard_agent
from tests.adapters.frameworks.scripts import USAGE, Mode, Ran, Script, SubAgent, Tools, in_session
from tests.adapters.frameworks.story import POLICY, Desk, Story

KINDS = {"str": "string", "int": "integer"}


class ScriptedModel(Model):
    """Plays a script, and notes which tools it is offered."""

    def __init__(self, script: Script) -> None:
        super().__init__(model_id="scripted")
        self._script = script
        self.offered: list[set[str]] = []

    def generate(self, messages: Any, tools_to_call_from: Any = None, **_: Any) -> ChatMessage:
        self.offered.append({one.name for one in tools_to_call_from or ()})
        number = len(self.offered)
        answer = self._script[number - 1]
        message = ChatMessage(role=MessageRole.ASSISTANT, content="")
        message.token_usage = TokenUsage(USAGE.input, USAGE.output)
        calls = (
            [("final_answer", {"answer": answer})]
            if isinstance(answer, str)
            else [(call.tool, dict(call.args)) for call in answer]
        )
        message.tool_calls = [
            ChatMessageToolCall(
                id=f"{number}-{index:02}",
                type="function",
                function=ChatMessageToolCallFunction(name=name, arguments=args),
            )
            for index, (name, args) in enumerate(calls)
        ]
        return message


class CodeModel(Model):
    """Writes code."""

    def __init__(self, *blocks: str) -> None:
        super().__init__(model_id="code")
        self._blocks = iter(blocks)

    def generate(self, *_: Any, **__: Any) -> ChatMessage:
        text = f"Thought: go.\n<code>\n{next(self._blocks)}\n</code>"
        return ChatMessage(role=MessageRole.ASSISTANT, content=text)


class Watched(ToolCallingAgent):
    """Notes what the model is to see of each call."""

    results: list[tuple[str, str]]

    def process_tool_calls(self, *args: Any, **kwargs: Any) -> Iterator[Any]:
        for event in super().process_tool_calls(*args, **kwargs):
            if isinstance(event, ToolOutput) and not event.is_final_answer:
                self.results.append((event.tool_call.name, event.observation))
            yield event


def make_tool(name: str, fn: Any) -> Tool:
    parameters = inspect.signature(fn).parameters

    class Made(Tool):
        skip_forward_signature_validation = True
        description = "A tool."
        inputs: ClassVar = {
            one: {"type": KINDS[str(parameter.annotation)], "description": "An argument."}
            for one, parameter in parameters.items()
        }
        output_type = "string"

        def forward(self, *args: Any, **kwargs: Any) -> Any:
            return fn(*args, **kwargs)

    Made.name = name
    return Made()


def make_agent(
    guard: Guard | None, script: Script, tools: Tools, price: Price | None, **options: Any
) -> Any:
    plain = [make_tool(name, fn) for name, fn in tools.items() if not isinstance(fn, SubAgent)]
    managed = [
        make_agent(guard, one.script * 2, one.tools, price, name=name, description="Ask.")
        for name, one in tools.items()
        if isinstance(one, SubAgent)
    ]
    agent = Watched(
        tools=plain,
        managed_agents=managed,
        model=ScriptedModel(script),
        verbosity_level=0,
        **options,
    )
    agent.results = []
    return guard_agent(agent, guard, price=price) if guard is not None else agent


class Smolagents:
    name = "smolagents"
    distribution = "smolagents"
    modes: tuple[Mode, ...] = ("sync", "stream")
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
        agent = make_agent(guard, script, tools, price)
        with in_session(guard, run):
            if mode == "sync":
                text = agent.run("go")
            else:
                last = [*agent.run("go", stream=True)][-1]
                text = last.output if isinstance(last, FinalAnswerStep) else last
        return Ran(agent.results, str(text), agent.model.offered)


class TestSmolagents(Story):
    framework = Smolagents()

    def test_code_is_guarded(self) -> None:
        desk = Desk()
        model = CodeModel(
            "forbidden()",
            "try:\n    forbidden()\nexcept Exception as e:\n    print(lookup('cat'))",
            "final_answer('done')",
        )
        tools = [make_tool(n, fn) for n, fn in desk.tools("forbidden", "lookup").items()]
        with Guard.load(POLICY) as guard:
            agent = guard_agent(CodeAgent(tools=tools, model=model, verbosity_level=0), guard)
            assert agent.run("go") == "done"
        assert desk.ran == ["lookup"]
        steps = [step for step in agent.memory.steps if hasattr(step, "observations")]
        assert "nobody may do this" in str(steps[0].error)
        assert "cat: a word" in steps[1].observations
