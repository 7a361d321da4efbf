"""LlamaIndex: an agent whose tools are checked."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import partial
from operator import attrgetter
from typing import Any
from uuid import uuid4

from policyguard.adapters.calls import Approval, CallEnd, GuardedCall
from policyguard.adapters.extras import missing_extra
from policyguard.adapters.runs import AgentRuns, Price, Usage, halt_text, offer
from policyguard.guard.event_loop import run_blocking
from policyguard.guard.guard import Guard
from policyguard.guard.session import Session

try:
    from llama_index.core.agent.workflow import AgentOutput, FunctionAgent
    from llama_index.core.llms import ChatMessage
    from llama_index.core.tools import FunctionTool, ToolOutput
    from llama_index.core.tools.types import adapt_to_async_tool
    from llama_index.core.workflow import Context, HumanResponseEvent, InputRequiredEvent
    from pydantic import ConfigDict, Field, PrivateAttr
    from workflows.runtime.types.results import WaitingForEvent
except ModuleNotFoundError as error:
    raise missing_extra(error, "LlamaIndex", "llama-index") from None

_COUNTS = (
    ("prompt_tokens", "completion_tokens", "prompt_tokens_details.cached_tokens", "-"),
    ("input_tokens", "output_tokens", "cache_read_input_tokens", "cache_creation_input_tokens"),
)
"""Where models say what they used: OpenAI's older interface and those like it, and Anthropic's."""
_USER = "the user of LlamaIndex"
_RUN, _BATCH = "policyguard_run", "policyguard_batch"


class PolicyguardAgent(FunctionAgent):
    """A `FunctionAgent` whose tool calls are checked and recorded, also in an `AgentWorkflow`.

    A `Context` is one run, also when it goes on later. *Ask* waits for a `HumanResponseEvent`.
    `price` returns what an answer of the model costs.
    """

    model_config = ConfigDict(arbitrary_types_allowed=True)

    guard: Guard = Field(exclude=True)
    price: Price | None = Field(default=None, exclude=True)
    _runs: AgentRuns = PrivateAttr()

    def __init__(self, **fields: Any) -> None:
        super().__init__(**fields)
        self._runs = AgentRuns(self.guard, self.price)
        agent: Any = self
        agent.tools = [self._guarded(tool) for tool in agent.tools or ()]

    async def get_tools(self, input_str: str | None = None) -> Sequence[Any]:
        """Return the tools, guarded, also those of a retriever."""
        return [self._guarded(tool) for tool in await super().get_tools(input_str)]

    async def take_step(self, ctx: Any, llm_input: Any, tools: Any, memory: Any) -> Any:
        """Call the model, unless the run is halted; count what it used."""
        session = await self._open(ctx)
        if await ctx.store.get("num_iterations", default=0) == 0:
            await run_blocking(self.guard, session.turn)
        if text := halt_text(session):
            message = ChatMessage(role="assistant", content=text)
            return AgentOutput(response=message, tool_calls=[], current_agent_name=self.name)
        named = {tool.metadata.get_name(): tool for tool in tools}
        hidden = await run_blocking(self.guard, partial(offer, session, named))
        shown = [tool for name, tool in named.items() if name not in hidden]
        output = await super().take_step(ctx, llm_input, shown, memory)
        await ctx.store.set(_BATCH, uuid4().hex)
        await run_blocking(self.guard, partial(self._runs.spend, session, self._read(output.raw)))
        return output

    def _guarded(self, tool: Any) -> Any:
        return tool if isinstance(tool, _GuardedTool) else _GuardedTool(tool, self)

    async def _open(self, ctx: Any) -> Session:
        """Return the session of a run, which its context keeps."""
        name = await ctx.store.get(_RUN, default=None)
        if name is None:
            name = self._runs.name()
            await ctx.store.set(_RUN, name)
        return await run_blocking(self.guard, partial(self._runs.open, name, self.name))

    def _read(self, raw: Any) -> Usage:
        counts = raw.get("usage") if isinstance(raw, dict) else None
        usages = (Usage.read(self.llm.metadata.model_name, counts or {}, *one) for one in _COUNTS)
        return max(usages, key=lambda usage: usage.input + usage.output)


class _GuardedTool(FunctionTool):
    """A tool whose calls are checked. LlamaIndex passes the context to functions that want one."""

    def __init__(self, inner: Any, agent: PolicyguardAgent) -> None:
        async def wants_context(ctx: Context) -> None: ...

        wants_context.__annotations__["ctx"] = Context
        super().__init__(async_fn=wants_context, metadata=inner.metadata)
        self._inner = adapt_to_async_tool(inner)
        self._agent = agent

    def call(self, *_: Any, **__: Any) -> Any:
        """Refuse: agents call tools on the event loop."""
        raise TypeError("a guarded tool is called by its agent")

    async def acall(self, *_: Any, ctx: Any, **args: Any) -> Any:
        """Check the call, run it, and record its end."""
        agent = self._agent
        session, batch = await agent._open(ctx), await ctx.store.get(_BATCH, default=None)
        call = GuardedCall(session, self.metadata.get_name(), args, batch=batch)
        run = partial(self._invoke, ctx, args)
        arun = partial(call.arun, run, read=attrgetter("content"), pauses=(WaitingForEvent,))
        end = await arun()
        if call.needs_approval and (approval := await self._ask(ctx, args, end.text)):
            end = await arun(ask=lambda _: approval)
        return self._write(end, args)

    async def _invoke(self, ctx: Any, args: dict[str, Any]) -> Any:
        wanted = getattr(self._inner, "ctx_param_name", None)
        output = await self._inner.acall(**args, **({wanted: ctx} if wanted else {}))
        if output.is_error:
            raise output.exception or RuntimeError(output.content)
        return output

    async def _ask(self, ctx: Any, args: dict[str, Any], message: str) -> Approval | None:
        """Wait for the user's answer; the step begins anew when it comes."""
        call = f"{self.metadata.get_name()} {json.dumps(args, sort_keys=True, default=str)}"
        answer = await ctx.wait_for_event(
            HumanResponseEvent,
            waiter_event=InputRequiredEvent(prefix=message, call=call),
            waiter_id=f"policyguard {call}",
            requirements={"call": call},
        )
        return Approval.read(answer.get("response"), _USER)

    def _write(self, end: CallEnd, args: dict[str, Any]) -> Any:
        if not end.failed and not end.is_changed:
            return end.returned
        return ToolOutput(
            content=end.text,
            tool_name=self.metadata.get_name(),
            raw_input=args,
            raw_output=end.text,
            is_error=end.failed,
            exception=end.error,
        )
