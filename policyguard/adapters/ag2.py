"""AG2: middleware of an agent."""

from __future__ import annotations

from functools import partial
from typing import Any
from uuid import uuid4

from policyguard.adapters.calls import Approval, CallEnd, GuardedCall, as_result
from policyguard.adapters.extras import missing_extra
from policyguard.adapters.runs import AgentRuns, Price, Usage, halt_text
from policyguard.guard.event_loop import run_blocking
from policyguard.guard.guard import Guard
from policyguard.guard.session import Session

try:
    from ag2.events import (
        ModelMessage,
        ModelResponse,
        ToolApprovalRequest,
        ToolErrorEvent,
        ToolResultEvent,
    )
    from ag2.events.tool_events import ToolResult
    from ag2.exceptions import HumanInputError
    from ag2.middleware import BaseMiddleware
except ModuleNotFoundError as error:
    raise missing_extra(error, "AG2", "ag2") from None

_COUNTS = (
    "prompt_tokens",
    "completion_tokens",
    "cache_read_input_tokens",
    "cache_creation_input_tokens",
)
_YES = ("y", "yes", "1")


class PolicyguardMiddleware:
    """Checks an agent's tool calls and records their results; *ask* is a question to the human.

    A stream is one run, also when it goes on later. `price` returns what an answer of the model
    costs.
    """

    def __init__(self, guard: Guard, *, price: Price | None = None) -> None:
        self._runs = AgentRuns(guard, price)

    def __call__(self, event: Any, context: Any) -> BaseMiddleware:
        """Return the middleware of one turn."""
        return _Turn(event, context, self._runs)


class _Turn(BaseMiddleware):
    """One turn of an agent, and the batch of the model's latest message."""

    def __init__(self, event: Any, context: Any, runs: AgentRuns) -> None:
        super().__init__(event, context)
        self._runs = runs
        self._name = runs.name(str(context.stream.id))
        self._batch: str | None = None

    async def on_turn(self, call_next: Any, event: Any, context: Any) -> Any:
        """Begin a turn of the session."""
        session = await self._open()
        await run_blocking(self._runs.guard, session.turn)
        return await call_next(event, context)

    async def on_llm_call(self, call_next: Any, events: Any, context: Any) -> Any:
        """Call the model, unless the run is halted; count what it used."""
        session = await self._open()
        if text := halt_text(session):
            return ModelResponse(ModelMessage(text))
        response = await call_next(events, context)
        self._batch = uuid4().hex
        usage = Usage.read(response.model, response.usage, *_COUNTS)
        await run_blocking(self._runs.guard, partial(self._runs.spend, session, usage))
        return response

    async def on_tool_execution(self, call_next: Any, event: Any, context: Any) -> Any:
        """Check a call, run it, and record its end."""
        session = await self._open()
        try:
            args = event.serialized_arguments
        except ValueError:
            args = event.arguments  # refused: it is no object

        async def invoke() -> Any:
            result = await call_next(event, context)
            if isinstance(result, ToolErrorEvent):
                raise result.error
            return result

        def start(ask: Any = None) -> Any:
            call = GuardedCall(session, event.name, args, batch=self._batch)
            run = call.arun(invoke, ask=ask, read=_read, pauses=(HumanInputError,))
            return call, run

        call, run = start()
        end = await run
        if call.needs_approval and await _ask(event, context, end.text):
            _, run = start(lambda _: Approval("the user of AG2"))
            end = await run
        return _write(event, end)

    async def _open(self) -> Session:
        return await run_blocking(self._runs.guard, partial(self._runs.open, self._name))


async def _ask(event: Any, context: Any, message: str) -> bool:
    """Return whether the human approves of a call; where there is none, no."""
    try:
        question = ToolApprovalRequest(f"{message}\nApprove? Y/N", tool_call_id=event.id)
        return (await context.ask(question)).strip().lower() in _YES
    except HumanInputError:
        return False


def _read(event: Any) -> Any:
    """Return a result as text or one of MCP."""
    parts = event.result.parts if isinstance(event, ToolResultEvent) else []
    texts = [str(getattr(part, "content", getattr(part, "data", part))) for part in parts]
    return texts[0] if len(texts) == 1 else as_result(texts, failed=False)


def _write(event: Any, end: CallEnd) -> Any:
    if end.failed:
        refused = RuntimeError(end.text)
        result = ToolResult(end.text)
        return ToolErrorEvent(parent_id=event.id, name=event.name, error=refused, result=result)
    if not end.is_changed:
        return end.returned
    before = end.returned.result
    result = ToolResult(end.text, final=before.final, metadata=before.metadata)
    return ToolResultEvent.from_call(event, result)
