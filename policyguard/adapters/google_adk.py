"""Google's Agent Development Kit: a plugin of a runner, which covers all of its agents."""

from __future__ import annotations

from asyncio import CancelledError
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any
from uuid import uuid4

from policyguard.adapters.calls import Approval, CallEnd, GuardedCall
from policyguard.adapters.extras import missing_extra
from policyguard.adapters.runs import AgentRuns, Price, Usage, begin_calling, halt_text, offer
from policyguard.guard.event_loop import run_blocking
from policyguard.guard.guard import Guard
from policyguard.guard.session import Session
from policyguard.model.decision import Decision

try:
    from google.adk.models import LlmResponse
    from google.adk.plugins.base_plugin import BasePlugin
    from google.genai import types
except ModuleNotFoundError as error:
    raise missing_extra(error, "the Agent Development Kit", "google-adk") from None

_COUNTS = ("prompt_token_count", "candidates_token_count", "cached_content_token_count")
_Key = tuple[str, str]


class PolicyguardPlugin(BasePlugin):
    """Checks the tool calls of a runner's agents; *ask* requests the user's confirmation.

    A run has the id of its ADK session; agents to which it transfers belong to it. `price` returns
    what an answer of the model costs.
    """

    def __init__(self, guard: Guard, *, price: Price | None = None) -> None:
        super().__init__(name="policyguard")
        self._runs = AgentRuns(guard, price)
        self._batches: dict[_Key, str] = {}
        self._calls: dict[_Key, tuple[GuardedCall, Callable[[], None]]] = {}

    async def on_user_message_callback(self, *, invocation_context: Any, user_message: Any) -> None:
        """Begin a turn, unless the message answers a question."""
        parts = user_message.parts or ()
        if not any(part.function_response for part in parts):
            await self._blocking(self._session(invocation_context).turn)

    async def before_model_callback(self, *, callback_context: Any, llm_request: Any) -> Any:
        """Offer the tools that the policy may allow; end a run that is halted."""
        session = self._session(callback_context)
        if text := halt_text(session):
            return LlmResponse(content=types.ModelContent(text))
        hidden = await self._blocking(partial(offer, session, [*llm_request.tools_dict]))
        for tool in (llm_request.config.tools or ()) if hidden else ():
            functions = getattr(tool, "function_declarations", None) or ()
            shown = [function for function in functions if function.name not in hidden]
            if len(shown) < len(functions):
                tool.function_declarations = shown
        return None

    async def after_model_callback(self, *, callback_context: Any, llm_response: Any) -> None:
        """Count what the model has used: what it calls is a batch."""
        if llm_response.partial:
            return
        session = self._session(callback_context)
        self._batches[session.id, callback_context.agent_name] = uuid4().hex
        usage = Usage.read(llm_response.model_version, llm_response.usage_metadata, *_COUNTS)
        await self._blocking(partial(self._runs.spend, session, usage))

    async def before_tool_callback(
        self, *, tool: Any, tool_args: dict[str, Any], tool_context: Any
    ) -> dict[str, Any] | None:
        """Check a call."""
        session = self._session(tool_context)
        batch = self._batches.get((session.id, tool_context.agent_name))
        call = GuardedCall(session, tool.name, tool_args, batch=batch)
        if not await call.acheck(partial(_ask, tool_context)):
            return {"error": call.decision.message}
        self._calls[_key(tool_context)] = call, begin_calling(session)
        return None

    async def after_tool_callback(
        self, *, tool: Any, tool_args: dict[str, Any], tool_context: Any, result: Any
    ) -> dict[str, Any] | None:
        """Record a result; one with an `error` is a failure, as in ADK's own tools."""
        error = result.get("error") if isinstance(result, Mapping) else None
        if error:
            return await self._end(tool_context, error=error if type(error) is str else str(error))
        return await self._end(tool_context, result=result)

    async def on_tool_error_callback(
        self, *, tool: Any, tool_args: dict[str, Any], tool_context: Any, error: BaseException
    ) -> dict[str, Any] | None:
        """Record what a tool raised; the model gets it as the call's result."""
        return await self._end(tool_context, error=error)

    async def after_run_callback(self, *, invocation_context: Any) -> None:
        """Record calls that were interrupted."""
        run = invocation_context.session.id
        for key in [key for key in self._calls if key[0] == run]:
            call, _ = self._calls.pop(key)
            await call.arecord(error=CancelledError("no result by the end of the run"))

    async def _end(self, tool_context: Any, **result: Any) -> dict[str, Any] | None:
        call, leave = self._calls.pop(_key(tool_context), (None, None))
        if call is None or leave is None:  # it was refused
            return None
        leave()
        return _show(await call.arecord(**result))

    def _session(self, context: Any) -> Session:
        return self._runs.open(context.session.id)

    async def _blocking(self, fn: Callable[[], Any]) -> Any:
        return await run_blocking(self._runs.guard, fn)


def _key(tool_context: Any) -> _Key:
    return tool_context.session.id, tool_context.function_call_id


def _show(end: CallEnd) -> dict[str, Any] | None:
    """Return what the model is to see, if it is not the tool's own result."""
    if end.failed:
        return {"error": end.text}
    if not end.is_changed:
        return None
    shown = end.value if isinstance(end.value, dict) else {"result": end.value}
    return {**shown, "note": end.advice} if end.advice else shown


def _ask(tool_context: Any, decision: Decision) -> Approval | None:
    """Return the user's answer, or ask them: the call is then made again."""
    answer = tool_context.tool_confirmation
    if answer is None:
        tool_context.request_confirmation(hint=decision.message)
        tool_context.actions.skip_summarization = True  # the model is not called in between
    return Approval("the user of ADK") if answer is not None and answer.confirmed else None
