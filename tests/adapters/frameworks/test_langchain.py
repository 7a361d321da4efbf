"""LangChain in the acceptance story, and what is special about it."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any

import pytest

pytest.importorskip("langchain", reason="runs with `make test-frameworks`")

from langchain.agents import create_agent
from langchain_core.language_models.chat_models import BaseChatModel
from langchain_core.messages import AIMessage, ToolMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.tools import InjectedToolCallId, StructuredTool, tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode
from langgraph.types import Command, interrupt

from policyguard import Guard
from policyguard.adapters.langchain import PolicyguardMiddleware
from tests.adapters.frameworks.scripts import USAGE, Call, Mode, Ran, Script, SubAgent, Tools
from tests.adapters.frameworks.story import Story


class ScriptedModel(BaseChatModel):
    """Plays a script, and notes which tools it is offered."""

    script: list[Any]
    offered: list[set[str]]
    position: int = 0

    @property
    def _llm_type(self) -> str:
        return "scripted"

    def bind_tools(self, tools: Any, **_: Any) -> Any:
        names = {tool["name"] if isinstance(tool, dict) else tool.name for tool in tools}
        return self.bind(names=names)

    def _generate(self, messages: Any, *_: Any, names: Any = (), **__: Any) -> ChatResult:
        self.offered.append(set(names))
        answer = self.script[self.position]
        self.position += 1
        calls, text = ([], answer) if isinstance(answer, str) else (answer, "")
        message = AIMessage(
            text,
            tool_calls=[
                {"name": call.tool, "args": dict(call.args), "id": f"{self.position}-{number}"}
                for number, call in enumerate(calls)
            ],
            usage_metadata={
                "input_tokens": USAGE.input,
                "output_tokens": USAGE.output,
                "total_tokens": USAGE.input + USAGE.output,
                "input_token_details": {
                    "cache_read": USAGE.cache_read,
                    "cache_creation": USAGE.cache_write,
                },
            },
        )
        return ChatResult(generations=[ChatGeneration(message=message)])


class LangChain:
    name = "LangChain"
    distribution = "langchain"
    modes: tuple[Mode, ...] = ("sync", "async", "stream")
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
        price: Any = None,
    ) -> Ran:
        model = ScriptedModel(script=script, offered=[])
        agent = create_agent(
            model,
            [self._make_tool(guard, name, tool, mode) for name, tool in tools.items()],
            middleware=[PolicyguardMiddleware(guard, price=price)] if guard else [],
            checkpointer=InMemorySaver(),
        )
        config = {"configurable": {"thread_id": run}}

        def go(given: Any) -> Ran:
            state = self._invoke(agent, given, config, mode)
            results = [
                (message.name, message.text)
                for message in state["messages"]
                if isinstance(message, ToolMessage)
            ]
            ran = Ran(results, state["messages"][-1].text, model.offered)
            if agent.get_state(config).interrupts:
                ran.resume = lambda yes: go(
                    Command(resume={"type": "approve" if yes else "reject", "by": "ann"})
                )
            return ran

        return go({"messages": [("user", "go")]})

    def _invoke(self, agent: Any, given: Any, config: Any, mode: Mode) -> Any:
        if mode == "async":
            return asyncio.run(agent.ainvoke(given, config))
        if mode == "stream":
            *_, state = agent.stream(given, config, stream_mode="values")
            return state
        return agent.invoke(given, config)

    def _make_tool(self, guard: Guard | None, name: str, tool: Any, mode: Mode) -> StructuredTool:
        if not isinstance(tool, SubAgent):
            return StructuredTool.from_function(tool, name=name, description="A tool.")

        def make_agent() -> Any:
            return create_agent(
                ScriptedModel(script=tool.script, offered=[]),
                [self._make_tool(guard, *named, mode) for named in tool.tools.items()],
                middleware=[PolicyguardMiddleware(guard)] if guard else [],
                name=name,
            )

        def research(task: str) -> str:
            return make_agent().invoke({"messages": [("user", task)]})["messages"][-1].text

        async def aresearch(task: str) -> str:
            state = await make_agent().ainvoke({"messages": [("user", task)]})
            return state["messages"][-1].text

        return StructuredTool.from_function(research, aresearch, name=name, description="Ask.")


class TestLangChain(Story):
    framework = LangChain()

    def test_a_tool_node_of_your_own_is_guarded(self, guard: Guard) -> None:
        middleware = PolicyguardMiddleware(guard)

        def forbidden() -> str:
            """Never runs."""
            raise AssertionError

        node = ToolNode([forbidden], wrap_tool_call=middleware.wrap_tool_call)
        graph = StateGraph(MessagesState).add_node("tools", node).add_edge(START, "tools").compile()
        call = {"name": "forbidden", "args": {}, "id": "1"}
        state = graph.invoke({"messages": [AIMessage("", tool_calls=[call])]})
        assert state["messages"][-1].status == "error"
        assert "nobody may do this" in state["messages"][-1].text

    def test_a_call_is_refused_where_no_interrupt_can_be_answered(self, guard: Guard) -> None:
        """Without a checkpointer the graph could not go on."""

        def deploy(target: str) -> str:
            """Never runs."""
            raise AssertionError

        model = ScriptedModel(script=[[Call("deploy", {"target": "shop"})], "done"], offered=[])
        agent = create_agent(model, [deploy], middleware=[PolicyguardMiddleware(guard)])
        *_, answer, end = agent.invoke({"messages": [("user", "go")]})["messages"]
        assert "needs an approval" in answer.text
        assert end.text == "done"

    def test_the_message_in_a_command_is_edited(self, guard: Guard) -> None:
        @tool
        def vault(tool_call_id: Annotated[str, InjectedToolCallId]) -> Command[Any]:
            """Return a secret."""
            message = ToolMessage("the word is swordfish-1234", tool_call_id=tool_call_id)
            return Command(update={"messages": [message]})

        model = ScriptedModel(script=[[Call("vault")], "done"], offered=[])
        agent = create_agent(model, [vault], middleware=[PolicyguardMiddleware(guard)])
        *_, answer, _ = agent.invoke({"messages": [("user", "go")]})["messages"]
        assert answer.text == "the word is [word]"

    def test_a_tool_that_interrupts_the_graph_is_called_again(self, guard: Guard) -> None:
        """What it has not done yet counts nowhere: three such calls would use up the budget."""

        def fetch(page: int) -> str:
            """Ask first."""
            return f"{page}: {interrupt('which edition?')}"

        pages = [Call("fetch", {"page": page}) for page in range(5)]
        model = ScriptedModel(script=[[page] for page in pages] + ["done"], offered=[])
        agent = create_agent(
            model,
            [fetch],
            middleware=[PolicyguardMiddleware(guard)],
            checkpointer=InMemorySaver(),
        )
        config = {"configurable": {"thread_id": "run"}}
        agent.invoke({"messages": [("user", "go")]}, config)
        for _ in pages:
            state = agent.invoke(Command(resume="the first"), config)
        answers = [m.text for m in state["messages"] if isinstance(m, ToolMessage)]
        assert answers == [f"{page}: the first" for page in range(5)]
