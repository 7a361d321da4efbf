"""Microsoft Agent Framework: middleware of an agent."""

from __future__ import annotations

from collections.abc import Mapping
from contextvars import ContextVar
from dataclasses import dataclass
from functools import partial
from typing import Any
from uuid import uuid4

from policyguard.adapters.calls import Approval, GuardedCall, as_result
from policyguard.adapters.extras import missing_extra
from policyguard.adapters.runs import AgentRuns, Price, Usage, halt_text, offer
from policyguard.guard.event_loop import run_blocking
from policyguard.guard.guard import Guard
from policyguard.guard.session import Session

try:
    import agent_framework as framework
except ModuleNotFoundError as error:
    raise missing_extra(error, "Microsoft Agent Framework", "agent-framework") from None

_KINDS = ("input", "output", "cache_read_input", "cache_creation_input")
_COUNTS = tuple(f"{kind}_token_count" for kind in _KINDS)
_Content = framework.Content
_USER = "the user of Microsoft Agent Framework"


class PolicyguardMiddleware(list[Any]):
    """Middleware that checks an agent's tool calls and records them; *ask* requests an approval.

    It is a list, of which all belong together: `[*PolicyguardMiddleware(guard), others]`. An
    `AgentSession` is one run, also when it goes on later. `price` returns what an answer of the
    model costs.
    """

    def __init__(self, guard: Guard, *, price: Price | None = None) -> None:
        runs = AgentRuns(guard, price)
        super().__init__([_Turns(runs), _Models(runs), _Calls(runs)])


@dataclass
class _Run:
    """One run of an agent: what to call its session, and the batch of the latest message."""

    name: str
    agent: str
    batch: str | None = None


_current: ContextVar[_Run | None] = ContextVar("policyguard_agent_framework_run", default=None)


class _Part:
    """What the middlewares share."""

    def __init__(self, runs: AgentRuns) -> None:
        self._runs = runs

    async def _open(self) -> tuple[_Run, Session]:
        run = _current.get()
        if run is None:  # a chat client of its own
            run = _Run(self._runs.name(), "")
            _current.set(run)
        opened = partial(self._runs.open, run.name, run.agent)
        return run, await run_blocking(self._runs.guard, opened)


class _Turns(_Part, framework.AgentMiddleware):
    """Begins a turn with each message of the user."""

    async def process(self, context: Any, call_next: Any) -> None:
        thread = context.session.session_id if context.session is not None else None
        run = _Run(self._runs.name(thread), getattr(context.agent, "name", None) or "")
        before = _current.set(run)
        _, session = await self._open()
        contents = [content for message in context.messages for content in message.contents]
        if not any(content.type == "function_approval_response" for content in contents):
            await run_blocking(self._runs.guard, session.turn)
        await call_next()
        if not context.stream:  # a stream is read later, in the same context
            _current.reset(before)


class _Models(_Part, framework.ChatMiddleware):
    """Hides tools that are always refused, and counts what the model uses."""

    async def process(self, context: Any, call_next: Any) -> None:
        run, session = await self._open()
        tools = (context.options or {}).get("tools") or []
        tools = tools if isinstance(tools, list) else [tools]
        names = {id(tool): getattr(tool, "name", "") for tool in tools}
        known = partial(offer, session, filter(None, names.values()))
        hidden = await run_blocking(self._runs.guard, known)
        shown = [tool for tool in tools if names[id(tool)] not in hidden]
        if len(shown) < len(tools):
            context.options = {**context.options, "tools": shown}
        model = (context.options or {}).get("model") or ""

        async def count(response: Any) -> None:
            run.batch = uuid4().hex  # what this message calls
            usage = Usage.read(response.model or model, response.usage_details, *_COUNTS)
            await run_blocking(self._runs.guard, partial(self._runs.spend, session, usage))

        if context.stream:
            context.stream_result_hooks.append(count)
        await call_next()
        if not context.stream:
            await count(context.result)


class _Calls(_Part, framework.FunctionMiddleware):
    """Checks a call, runs it, and records its end."""

    async def process(self, context: Any, call_next: Any) -> None:
        run, session = await self._open()
        args, tool = context.arguments, context.function.name
        args = args if isinstance(args, Mapping) else args.model_dump()
        call = GuardedCall(session, tool, dict(args), batch=run.batch)
        is_approved = context.metadata.get("approval_response") is not None

        async def invoke() -> Any:
            await call_next()
            return context.result

        ask = (lambda _: Approval(_USER)) if is_approved else None
        end = await call.arun(invoke, ask=ask, read=_read)
        context.result = end.text if end.failed or end.is_changed else end.returned
        if call.needs_approval and not is_approved:
            call_id = context.metadata["call_id"]
            id_ = context.metadata.get("function_call_occurrence_id") or call_id
            asked = _Content.from_function_call(call_id=call_id, id=id_, name=tool, arguments=args)
            context.result = _Content.from_function_approval_request(
                id=id_, function_call=asked, additional_properties={"reason": end.text}
            )
        elif halt_text(session):
            raise framework.MiddlewareTermination(end.text)


def _read(returned: Any) -> Any:
    """Return a result as text or one of MCP; a tool may also return what is no list of contents."""
    if not isinstance(returned, list) or not all(hasattr(part, "to_dict") for part in returned):
        return returned
    if len(returned) == 1 and returned[0].type == "text":
        return returned[0].text
    parts = [part.text if part.type == "text" else part.to_dict() for part in returned]
    return as_result(parts, failed=False)
