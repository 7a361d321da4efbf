"""LangChain and LangGraph: a middleware for `create_agent`, and for a `ToolNode` of your own."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Annotated, Any

from policyguard.adapters.calls import Approval, CallEnd, GuardedCall, as_result
from policyguard.adapters.extras import missing_extra
from policyguard.adapters.runs import AgentRuns, Price, Usage, halt_text, offer
from policyguard.guard.event_loop import run_blocking
from policyguard.guard.guard import Guard
from policyguard.guard.session import Session
from policyguard.model.decision import Decision

try:
    from langchain.agents.middleware import AgentMiddleware, AgentState
    from langchain.agents.middleware.types import PrivateStateAttr
    from langchain_core.messages import AIMessage, ToolMessage
    from langgraph.config import get_config
    from langgraph.errors import GraphBubbleUp
    from langgraph.types import Command, interrupt
except ModuleNotFoundError as error:
    raise missing_extra(error, "LangChain", "langchain") from None

_CACHE = "input_token_details.cache_"
_COUNTS = ("input_tokens", "output_tokens", f"{_CACHE}read", f"{_CACHE}creation")


class _State(AgentState[Any], total=False):  # type: ignore[call-arg] # a TypedDict, where there is LangChain
    policyguard_run: Annotated[str, PrivateStateAttr]


class PolicyguardMiddleware(AgentMiddleware[_State, Any, Any]):
    """Checks tool calls. Put it last: it sees what tools raise. `price` is what an answer costs."""

    state_schema = _State

    def __init__(self, guard: Guard, *, price: Price | None = None) -> None:
        super().__init__()
        self._runs = AgentRuns(guard, price)
        self._unnamed = self._runs.name()

    def before_agent(self, state: Any, runtime: Any) -> dict[str, Any]:
        """Begin a turn."""
        run = self._runs.name(_configurable("thread_id"))
        self._session({"policyguard_run": run}).turn()
        return {"policyguard_run": run}

    def after_agent(self, state: Any, runtime: Any) -> None:
        """End a run that has no thread."""
        self._runs.end(self._session(state))

    def wrap_model_call(self, request: Any, handler: Callable[[Any], Any]) -> Any:
        """Offer the tools that may be allowed; a run that is halted ends with a text of ours."""
        session = self._session(request.state)
        if text := halt_text(session):
            return AIMessage(text)
        return self._spend(session, handler(_offer(session, request)))

    async def awrap_model_call(self, request: Any, handler: Callable[[Any], Awaitable[Any]]) -> Any:
        """Do as `wrap_model_call` does."""
        guard, session = self._runs.guard, self._session(request.state)
        if text := halt_text(session):
            return AIMessage(text)
        response = await handler(await run_blocking(guard, partial(_offer, session, request)))
        return await run_blocking(guard, partial(self._spend, session, response))

    def wrap_tool_call(self, request: Any, handler: Callable[[Any], Any]) -> Any:
        """Check, run and record a call."""
        call, options = self._call(request)
        return _answer(call.run(partial(handler, request), **options), request.tool_call)

    async def awrap_tool_call(self, request: Any, handler: Callable[[Any], Awaitable[Any]]) -> Any:
        """Do as `wrap_tool_call` does."""
        call, options = self._call(request)
        return _answer(await call.arun(partial(handler, request), **options), request.tool_call)

    def _session(self, state: Any) -> Session:
        """Return the session of a state; a `ToolNode` of your own has a thread at most."""
        run = state.get("policyguard_run") if isinstance(state, Mapping) else None
        agent = get_config().get("metadata", {}).get("lc_agent_name") or ""
        return self._runs.open(run or _configurable("thread_id") or self._unnamed, agent)

    def _spend(self, session: Session, response: Any) -> Any:
        """Count what the model has used for a response; return that."""
        for answer in (m for m in response.result if isinstance(m, AIMessage)):
            model, used = answer.response_metadata.get("model_name"), answer.usage_metadata
            self._runs.spend(session, Usage.read(model, used, *_COUNTS))
        return response

    def _call(self, request: Any) -> tuple[GuardedCall, dict[str, Any]]:
        called, batch = request.tool_call, getattr(_last_answer(request.state), "id", None)
        options = {"ask": partial(_ask, called), "read": partial(_read, called)}
        session = self._session(request.state)
        call = GuardedCall(session, called["name"], called["args"], batch=batch)
        return call, {**options, "pauses": (GraphBubbleUp,)}


def _last_answer(state: Any) -> Any:
    messages = reversed(state.get("messages", []) if isinstance(state, Mapping) else [])
    return next((message for message in messages if isinstance(message, AIMessage)), None)


def _configurable(key: str) -> Any:
    return get_config().get("configurable", {}).get(key)


def _offer(session: Session, request: Any) -> Any:
    """Return a request without the tools of which the policy refuses every call."""
    tools = request.tools
    hidden = offer(session, [tool.name for tool in tools if not isinstance(tool, dict)])
    kept = [tool for tool in tools if getattr(tool, "name", None) not in hidden]
    return request.override(tools=kept) if hidden else request


def _ask(called: Any, decision: Decision) -> Approval | None:
    """Interrupt the graph until its user answers, if it can go on then."""
    if not _configurable("__pregel_checkpointer"):  # which keeps an interrupted run
        return None
    question = {"tool_call_id": called["id"], "name": called["name"], "args": called["args"]}
    question |= {"type": "tool_approval", "description": decision.message}
    return Approval.read(interrupt(question), "the user of LangGraph")


def _find_message(called: Any, result: Any) -> Any:
    """Return the message that answers a call, which a tool may have put into a `Command`."""
    update = result.update if isinstance(result, Command) else {"messages": [result]}
    messages = update.get("messages", ()) if isinstance(update, Mapping) else ()
    ids = ((message, getattr(message, "tool_call_id", None)) for message in messages)
    return next((message for message, id_ in ids if id_ == called["id"]), None)


def _read(called: Any, result: Any) -> Any:
    """Return what the model sees of a result."""
    message = _find_message(called, result)
    return "" if message is None else as_result(message.content, failed=message.status == "error")


def _answer(end: CallEnd, called: Any) -> Any:
    """Return a result as the model is to see it."""
    if end.failed:
        return ToolMessage(end.text, name=called["name"], tool_call_id=called["id"], status="error")
    message = _find_message(called, end.returned)
    if end.is_changed and message is not None:
        is_text = isinstance(message.content, str) or isinstance(end.value, str)
        message.content = end.text if is_text else end.value["content"]
    return end.returned
