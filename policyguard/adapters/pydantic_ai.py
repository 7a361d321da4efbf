"""Pydantic AI: a capability of an agent."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from copy import copy
from dataclasses import replace
from functools import partial
from typing import Any, get_args
from uuid import uuid4

from policyguard.adapters.calls import Approval, GuardedCall
from policyguard.adapters.extras import missing_extra
from policyguard.adapters.runs import AgentRuns, Price, Usage, halt_text, offer
from policyguard.guard.event_loop import run_blocking
from policyguard.guard.guard import Guard
from policyguard.guard.session import Session
from policyguard.model.decision import Decision

try:
    from pydantic_ai import DeferredToolRequests, ToolReturn
    from pydantic_ai.capabilities import AbstractCapability
    from pydantic_ai.exceptions import (
        ApprovalRequired,
        CallDeferred,
        ModelRetry,
        SkipToolExecution,
        ToolFailed,
        ToolFailedError,
        ToolRetryError,
    )
    from pydantic_ai.messages import ModelResponse, TextPart
except ModuleNotFoundError as error:
    raise missing_extra(error, "Pydantic AI", "pydantic-ai") from None

_COUNTS = ("input_tokens", "output_tokens", "cache_read_tokens", "cache_write_tokens")
_PAUSES = (ApprovalRequired, CallDeferred, SkipToolExecution)


class PolicyguardCapability(AbstractCapability[Any]):
    """Checks an agent's tool calls and records their results; *ask* defers a call for approval.

    A run's session has the id of its conversation. `price` returns what an answer of the model
    costs.
    """

    def __init__(self, guard: Guard, *, price: Price | None = None) -> None:
        self._runs = AgentRuns(guard, price)
        self._session: Session
        self._batch = ""

    async def for_run(self, ctx: Any) -> PolicyguardCapability:
        """Return the capability of one run, which has its session."""
        one = copy(self)
        agent = getattr(ctx.agent, "name", None) or ""
        one._session = self._runs.open(self._runs.name(ctx.conversation_id), agent)
        return one

    async def wrap_run(self, ctx: Any, *, handler: Callable[[], Awaitable[Any]]) -> Any:
        """Begin a turn; a sub-agent's run is over at its end."""
        await self._blocking(self._session.turn)
        try:
            return await handler()
        finally:
            await self._blocking(partial(self._runs.end, self._session))

    async def wrap_model_request(
        self, ctx: Any, *, request_context: Any, handler: Callable[[Any], Awaitable[Any]]
    ) -> Any:
        """Offer the tools that the policy may allow, and count what the model uses.

        A run that is halted ends: with a text if that may be its output, else cancelled.
        """
        parameters = request_context.model_request_parameters
        if text := halt_text(self._session):
            if not parameters.allow_text_output:
                ctx.cancel()
            return ModelResponse(parts=[TextPart(text)])
        names = [tool.name for tool in parameters.function_tools]
        hidden = await self._blocking(partial(offer, self._session, names))
        shown = [tool for tool in parameters.function_tools if tool.name not in hidden]
        parameters = replace(parameters, function_tools=shown)
        context = replace(request_context, model_request_parameters=parameters)
        response = await handler(context if hidden else request_context)
        self._batch = uuid4().hex
        usage = Usage.read(response.model_name, response.usage, *_COUNTS)
        await self._blocking(partial(self._runs.spend, self._session, usage))
        return response

    async def wrap_tool_execute(
        self, ctx: Any, *, call: Any, tool_def: Any, args: Any, handler: Callable[[Any], Any]
    ) -> Any:
        """Check, run and record a call."""
        guarded = GuardedCall(self._session, call.tool_name, args, batch=self._batch)

        async def run() -> Any:
            try:
                return await handler(args)
            except (ToolRetryError, ToolFailedError) as error:  # around what the tool raised
                raise error.__cause__ or error from error.__cause__

        end = await guarded.arun(run, ask=partial(_ask, ctx), read=_read, pauses=_PAUSES)
        if end.failed:
            raise (ModelRetry if isinstance(end.error, ModelRetry) else ToolFailed)(end.text)
        if not end.is_changed:
            return end.returned
        if not isinstance(end.returned, ToolReturn):
            return ToolReturn(end.value, content=end.advice) if end.advice else end.value
        content = end.returned.content
        parts = [content] if isinstance(content, str) else [*(content or ())]
        advised = [*parts, end.advice] if end.advice else content
        return replace(end.returned, return_value=end.value, content=advised)

    async def _blocking(self, fn: Callable[[], Any]) -> Any:
        return await run_blocking(self._runs.guard, fn)


def _read(result: Any) -> Any:
    return result.return_value if isinstance(result, ToolReturn) else result


def _ask(ctx: Any, decision: Decision) -> Approval | None:
    """Defer the call until its user has answered, if the agent's output may be such a request."""
    if ctx.tool_call_approved:
        return Approval("the user of Pydantic AI")
    outputs = getattr(ctx.agent, "output_type", None)
    outputs = outputs if isinstance(outputs, list | tuple) else get_args(outputs) or [outputs]
    if DeferredToolRequests in outputs:
        raise ApprovalRequired(metadata={"policyguard": decision.message})
    return None
