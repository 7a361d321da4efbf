"""Strands Agents: hooks of an agent."""

from __future__ import annotations

from asyncio import CancelledError
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any
from uuid import uuid4
from weakref import WeakKeyDictionary

from policyguard.adapters.calls import Approval, CallEnd, GuardedCall
from policyguard.adapters.extras import missing_extra
from policyguard.adapters.runs import AgentRuns, Price, Usage, begin_calling, halt_text
from policyguard.guard.event_loop import run_blocking
from policyguard.guard.guard import Guard
from policyguard.guard.session import Session
from policyguard.model.decision import Decision

try:
    from strands import hooks
except ModuleNotFoundError as error:
    raise missing_extra(error, "Strands Agents", "strands") from None

_COUNTS = ("inputTokens", "outputTokens", "cacheReadInputTokens", "cacheWriteInputTokens")


class _Conversation:
    """What is known of one agent: its run, its latest batch, and its calls by `toolUseId`."""

    def __init__(self, run: str) -> None:
        self.run = run
        self.batch = ""
        self.calls: dict[str, tuple[GuardedCall, Callable[[], None]]] = {}


class PolicyguardHooks(hooks.HookProvider):
    """Checks an agent's tool calls and records their results; *ask* interrupts the agent.

    The conversation of an `Agent` object is one run. `price` returns what an answer of the model
    costs.
    """

    def __init__(self, guard: Guard, *, price: Price | None = None) -> None:
        self._runs = AgentRuns(guard, price)
        self._conversations: WeakKeyDictionary[Any, _Conversation] = WeakKeyDictionary()

    def register_hooks(self, registry: Any, **_: Any) -> None:
        """Register the hooks of an agent."""
        registry.add_callback(hooks.BeforeInvocationEvent, self._begin)
        registry.add_callback(hooks.AfterModelCallEvent, self._spend)
        registry.add_callback(hooks.BeforeToolCallEvent, self._check)
        registry.add_callback(hooks.AfterToolCallEvent, self._record)
        registry.add_callback(hooks.AfterToolsEvent, self._end_if_halted)
        registry.add_callback(hooks.AfterInvocationEvent, self._close_calls)

    async def _begin(self, event: Any) -> None:
        """Begin a turn, unless the message answers a question."""
        blocks = [block for message in event.messages or () for block in message["content"]]
        if not any("interruptResponse" in block for block in blocks):
            await self._blocking(self._session(event).turn)

    async def _spend(self, event: Any) -> None:
        """Count what the model has used: what it calls is a batch."""
        if event.stop_response is None:
            return
        self._conversation(event).batch = uuid4().hex
        model = event.agent.model.get_config().get("model_id")
        counts = event.stop_response.message.get("metadata", {}).get("usage")
        usage = Usage.read(model, counts, *_COUNTS)
        await self._blocking(partial(self._runs.spend, self._session(event), usage))

    async def _check(self, event: Any) -> None:
        conversation, called = self._conversation(event), event.tool_use
        session, args = self._session(event), called["input"]
        call = GuardedCall(session, called["name"], args, batch=conversation.batch)
        if await call.acheck(partial(_ask, event)):
            conversation.calls[called["toolUseId"]] = call, begin_calling(session)
        else:
            event.cancel_tool = call.decision.message

    async def _record(self, event: Any) -> None:
        """Record a result, and replace it by what the model is to see."""
        id_ = event.tool_use["toolUseId"]
        call, leave = self._conversation(event).calls.pop(id_, (None, None))
        if call is None or leave is None:  # it was refused
            return
        leave()
        if event.exception is not None:
            end = await call.arecord(error=event.exception, duration=event.duration)
        else:
            shown = _read(event.result)
            end = await call.arecord(result=shown, duration=event.duration)
        if end.failed or end.is_changed:
            event.result = {**event.result, "content": _write(end)}

    async def _end_if_halted(self, event: Any) -> None:
        if text := halt_text(self._session(event)):
            event.end_turn = text

    async def _close_calls(self, event: Any) -> None:
        """Record calls that were interrupted."""
        calls = self._conversation(event).calls
        while calls:
            call, _ = calls.popitem()[1]
            await call.arecord(error=CancelledError("no result by the end of the turn"))

    def _conversation(self, event: Any) -> _Conversation:
        if event.agent not in self._conversations:
            self._conversations[event.agent] = _Conversation(self._runs.name())
        return self._conversations[event.agent]

    def _session(self, event: Any) -> Session:
        return self._runs.open(self._conversation(event).run, event.agent.name or "")

    async def _blocking(self, fn: Callable[[], Any]) -> Any:
        return await run_blocking(self._runs.guard, fn)


def _ask(event: Any, decision: Decision) -> Approval | None:
    """Interrupt the agent until its user answers."""
    answer = event.interrupt("policyguard", reason=decision.message)
    return Approval.read(answer, "the user of Strands")


def _read(result: Any) -> dict[str, Any]:
    """Return a result as one of MCP, whose blocks name their type."""
    kinds = (next(iter(block), "") for block in result["content"])
    blocks = [{"type": kind, **b} for kind, b in zip(kinds, result["content"], strict=True)]
    return {"content": blocks, "isError": result["status"] == "error"}


def _write(end: CallEnd) -> list[dict[str, Any]]:
    if not isinstance(end.value, Mapping):
        return [{"text": end.text}]
    return [{k: v for k, v in block.items() if k != "type"} for block in end.value["content"]]
