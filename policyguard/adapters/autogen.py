"""AutoGen: an agent whose tools are checked."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping, Sequence
from functools import partial
from typing import Any
from uuid import uuid4

from policyguard.adapters.calls import GuardedCall, as_result
from policyguard.adapters.extras import missing_extra
from policyguard.adapters.runs import AgentRuns, Price, Usage, halt_text, offer
from policyguard.guard.event_loop import run_blocking
from policyguard.guard.guard import Guard
from policyguard.guard.session import Session

try:
    from autogen_agentchat.agents import AssistantAgent
    from autogen_agentchat.base import Response
    from autogen_agentchat.messages import (
        TextMessage,
        ToolCallExecutionEvent,
        ToolCallRequestEvent,
    )
    from autogen_core.tools import TextResultContent, ToolResult, Workbench
except ModuleNotFoundError as error:
    raise missing_extra(error, "AutoGen", "autogen") from None

_COUNTS = ("prompt_tokens", "completion_tokens")


class PolicyguardAgent(AssistantAgent):
    """An `AssistantAgent` whose tool calls are checked and recorded.

    An agent's conversation is one run; a message of the user begins a turn. `price` returns what an
    answer of the model costs.
    """

    def __init__(
        self, *args: Any, guard: Guard, price: Price | None = None, **options: Any
    ) -> None:
        super().__init__(*args, **options)
        self._runs = AgentRuns(guard, price)
        self._thread = uuid4().hex
        self._run = ""
        self._batch: str | None = None
        agent: Any = self
        agent._workbench = [_GuardedWorkbench(bench, self) for bench in agent._workbench]

    async def on_messages_stream(
        self, messages: Sequence[Any], cancellation_token: Any
    ) -> AsyncGenerator[Any, None]:
        """Answer messages; see `AssistantAgent`. A halt ends it with a text."""
        guard = self._runs.guard
        self._run = self._runs.name(self._thread)
        session = await run_blocking(guard, self._open)
        if any(message.source == "user" for message in messages):
            await run_blocking(guard, session.turn)
        tools = [tool["name"] for bench in self._workbench for tool in await bench.list_tools()]
        await run_blocking(guard, partial(offer, session, tools))
        async for event in super().on_messages_stream(messages, cancellation_token):
            message = event.chat_message if isinstance(event, Response) else event
            counts = getattr(message, "models_usage", None)
            if counts is not None:
                usage = Usage.read("", counts, *_COUNTS)
                await run_blocking(guard, partial(self._runs.spend, session, usage))
            if isinstance(event, ToolCallRequestEvent):
                self._batch = event.id
            yield event
            text = halt_text(session)
            if text and isinstance(event, ToolCallExecutionEvent):
                yield Response(chat_message=TextMessage(content=text, source=self.name))
                return

    async def on_reset(self, cancellation_token: Any) -> None:
        """Forget the conversation: what follows is another run."""
        await super().on_reset(cancellation_token)
        self._thread = uuid4().hex

    def _open(self) -> Session:
        return self._runs.open(self._run, self.name)


class _GuardedWorkbench(Workbench):
    """A workbench whose calls are checked. Its state is the inner one's."""

    def __init__(self, inner: Any, agent: PolicyguardAgent) -> None:
        self._inner = inner
        self._agent = agent
        for name in ("list_tools", "start", "stop", "reset", "save_state", "load_state"):
            setattr(self, name, getattr(inner, name))

    async def list_tools(self) -> Any:
        """Replaced by the inner one's, as are the others below."""
        raise NotImplementedError

    start = stop = reset = save_state = load_state = list_tools

    async def call_tool(
        self,
        name: str,
        arguments: Mapping[str, Any] | None = None,
        cancellation_token: Any = None,
        call_id: str | None = None,
    ) -> Any:
        """Check the call, run it, and record its end."""
        agent = self._agent
        session = await run_blocking(agent._runs.guard, agent._open)
        call = GuardedCall(session, name, dict(arguments or {}), batch=agent._batch)
        end = await call.arun(
            partial(self._inner.call_tool, name, arguments, cancellation_token, call_id), read=_read
        )
        if not end.failed and not end.is_changed:
            return end.returned
        failed = end.failed or end.returned.is_error
        content = TextResultContent(content=end.text)
        return ToolResult(name=name, result=[content], is_error=failed)


def _read(result: Any) -> Any:
    return as_result(result.to_text(), failed=result.is_error)
