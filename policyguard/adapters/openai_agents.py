"""OpenAI Agents SDK: an agent whose tools are checked, of functions, MCP servers and agents."""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any
from uuid import uuid4
from weakref import finalize

from policyguard.adapters.calls import Approval, CallEnd, GuardedCall
from policyguard.adapters.extras import missing_extra
from policyguard.adapters.runs import AgentRuns, Price, Usage, halt_text
from policyguard.guard.event_loop import run_blocking
from policyguard.guard.guard import Guard
from policyguard.guard.session import Session
from policyguard.model.effect import Effect

try:
    from agents import Agent, AgentHooks, FunctionTool, ToolsToFinalOutputResult
    from agents.tool import ToolOutputText
except ModuleNotFoundError as error:
    raise missing_extra(error, "the OpenAI Agents SDK", "openai-agents") from None

_COUNTS = ("input_tokens", "output_tokens", "input_tokens_details.cached_tokens")
_CACHE_WRITES = "input_tokens_details.cache_write_tokens"
_RAISES = {"_failure_error_function": None, "_use_default_failure_error_function": False}
"""Lets a tool raise: the SDK's own text for its errors says nothing of them."""


@dataclass
class _Run:
    """A run in this process: its id, and the batch of the model's latest message."""

    name: str
    batch: str = ""


_runs: dict[int, _Run] = {}
"""By the id of the counter of tokens, the only thing that all contexts of a run share."""


@dataclass
class PolicyguardAgent(Agent[Any]):
    """An `Agent` whose tool calls are checked and recorded; *ask* interrupts the run.

    Its run has the session of the surrounding `with guard.session(...):` block, or one of its own.
    `price` returns what an answer of the model costs.
    """

    guard: Guard = field(kw_only=True)
    price: Price | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        self._agent_runs = AgentRuns(self.guard, self.price)
        agent: Any = self
        if not isinstance(agent.hooks, _Hooks):
            agent.hooks = _Hooks(agent.hooks)
        if agent.tool_use_behavior == "run_llm_again":
            agent.tool_use_behavior = partial(_end_if_halted, self)

    async def get_all_tools(self, run_context: Any) -> list[Any]:
        """Return the tools, guarded. All: the SDK ends a run that calls one which is missing."""
        await run_blocking(self.guard, partial(self.session, run_context))
        tools = await super().get_all_tools(run_context)
        return [self._guarded(tool) if isinstance(tool, FunctionTool) else tool for tool in tools]

    def session(self, context: Any) -> Session:
        """Return the session of a run; one that is new begins a turn."""
        counter = id(context.usage)
        if counter not in _runs:
            _runs[counter] = _Run(self._agent_runs.name())
            finalize(context.usage, _runs.pop, counter, None)
            self.session(context).turn()
        return self._agent_runs.open(_runs[counter].name)

    def spend(self, context: Any, response: Any) -> None:
        """Count an answer of the model: what it calls is a batch."""
        session = self.session(context)
        _runs[id(context.usage)].batch = uuid4().hex  # some models give all their answers one id
        model = self.model if isinstance(self.model, str) else None
        usage = Usage.read(model, response.usage, *_COUNTS, _CACHE_WRITES)
        self._agent_runs.spend(session, usage)

    def _guarded(self, tool: Any) -> Any:
        inner, raising = tool.needs_approval, replace(tool, **_RAISES)

        async def needs_approval(context: Any, args: dict[str, Any], call_id: str) -> bool:
            if inner is True or (callable(inner) and await inner(context, args, call_id)):
                return True
            preview = partial(self.session(context).preview, tool.name, args)
            decision = await run_blocking(self.guard, preview)
            return decision.effect is Effect.ASK and self.guard._approver is None

        async def invoke(context: Any, args: str) -> Any:
            session = self.session(context)
            batch = _runs[id(context.usage)].batch
            call = GuardedCall(session, tool.name, _parse(args), batch=batch)
            ask = partial(_ask, context, tool.name)
            end = await call.arun(partial(raising.on_invoke_tool, context, args), ask=ask)
            return _show(end)

        return replace(tool, on_invoke_tool=invoke, needs_approval=needs_approval)


def _ask(context: Any, tool: str, _: Any) -> Approval | None:
    """Return the answer of the SDK's user, who was asked before."""
    is_approved = context.is_tool_approved(tool, context.tool_call_id)
    return Approval("the user of the OpenAI Agents SDK") if is_approved else None


def _parse(args: str) -> Any:
    try:
        return json.loads(args or "{}")
    except ValueError:
        return args  # refused: it is no object


def _show(end: CallEnd) -> Any:
    """Return what the model is to see; advice on images and files is a text beside them."""
    if not end.is_changed or end.failed or not end.advice:
        return end.value
    parts = end.value if isinstance(end.value, list) else [end.value]
    if not all(type(part).__name__.startswith("ToolOutput") for part in parts):
        return end.text
    return [*parts, ToolOutputText(text=end.advice)]


def _end_if_halted(agent: PolicyguardAgent, context: Any, _: Any) -> Any:
    text = halt_text(agent.session(context))
    return ToolsToFinalOutputResult(is_final_output=bool(text), final_output=text or None)


class _Hooks(AgentHooks[Any]):
    """Counts what the model uses, and passes everything on to the host's hooks."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner
        for name in ("on_start", "on_end", "on_handoff", "on_tool_start", "on_tool_end"):
            if inner is not None:
                setattr(self, name, getattr(inner, name))

    async def on_llm_end(self, context: Any, agent: Any, response: Any) -> None:
        await run_blocking(agent.guard, partial(agent.spend, context, response))
        if self._inner is not None:
            await self._inner.on_llm_end(context, agent, response)
