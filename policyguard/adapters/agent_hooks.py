"""policyguard as an interceptor of AGENT-HOOKS 0.1, for every host of that contract.

    from policyguard.adapters.agent_hooks import PolicyguardInterceptor

    emitter = InterceptionEmitter().register(PolicyguardInterceptor(guard))

https://github.com/responsibleai/agent-hooks. Needs the extra `agent-hooks`.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from policyguard.guard.event_loop import run_blocking
from policyguard.guard.session import Session
from policyguard.model.decision import Decision
from policyguard.model.effect import Effect
from policyguard.model.errors import UnknownCallError

try:
    from agent_hooks import Decision as HostDecision
    from agent_hooks import Transform, Verdict
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(
        "policyguard.adapters.agent_hooks needs the SDK of AGENT-HOOKS: "
        "pip install --pre 'policyguard-engine[agent-hooks]'",
        name=error.name,
    ) from None

if TYPE_CHECKING:
    from policyguard.guard.guard import Guard

_APPROVER = "the approval resolver of the host"
_MAX_ASKED = 1000
"""Calls that wait for an approval, of all sessions."""


class PolicyguardInterceptor:
    """Decides on tool calls, and sees turns, results and the model's usage.

    A refusal is a plain deny. *ask* is a deny that an approval resolver of the host may lift; a
    call that then runs is approved and counted when its result comes. Advice is a warning, and is
    added to a result that is text. What result rules change, the model sees changed, by a
    transform. `price` returns the cost of one model call from its usage, in the currency of the
    policy's budgets.
    """

    def __init__(
        self, guard: Guard, *, price: Callable[[Mapping[str, Any]], float] | None = None
    ) -> None:
        self._guard = guard
        self._price = price
        self._asked: OrderedDict[tuple[str, str], Decision] = OrderedDict()

    def intercept(self, context: Mapping[str, Any], /) -> Any:  # the SDK types no coroutine
        """Return an awaitable of the verdict on what the host is about to do, or has done."""
        return self._intercept(context)

    async def _intercept(self, context: Mapping[str, Any]) -> Verdict:
        session = await self._open(context)
        match context["interception_point"]:
            case "agent_startup":
                tools = context["agent_init"].get("tools_registered")
                if tools:
                    session.offer(tools)
            case "input":
                await self._do(session.turn)
            case "post_model_call":
                await self._do(partial(self._spend, session, context.get("usage") or {}))
            case "pre_tool_call":
                return await self._check(session, context["tool_call"])
            case "post_tool_call":
                return await self._record(session, context["tool_call"], context["tool_result"])
            case "agent_shutdown":
                await self._do(session.close)
        return Verdict.allow()

    async def _open(self, context: Mapping[str, Any]) -> Session:
        agent, actor = context["agent"], context.get("actor") or {}
        opened: Session = await self._do(
            partial(
                self._guard.session,
                context["session"]["id"],
                agent=agent.get("name") or agent["id"],
                user=actor.get("id") or "",
            )
        )
        return opened

    async def _do(self, act: Callable[[], Any]) -> Any:
        return await run_blocking(self._guard, act)

    def _spend(self, session: Session, usage: Mapping[str, Any]) -> None:
        tokens = usage.get("total_tokens")
        if tokens is None:
            tokens = (usage.get("prompt_tokens") or 0) + (usage.get("completion_tokens") or 0)
        cost = self._price(usage) if self._price is not None else 0.0
        session.spend(tokens=tokens, cost=cost, model_calls=1)

    async def _check(self, session: Session, call: Mapping[str, Any]) -> Verdict:
        decision = await session.acheck(call["name"], call["args"], call=call["id"])
        reason = decision.violations[0].id if decision.violations else None
        if decision.allowed:
            return Verdict.warn(reason=reason, message=decision.message) if reason else _ALLOW
        if decision.effect is Effect.ASK:
            self._asked[session.id, call["id"]] = decision
            if len(self._asked) > _MAX_ASKED:
                self._asked.popitem(last=False)
            return Verdict.escalate(reason=reason, message=decision.message)
        return Verdict.deny(reason=reason, message=decision.message)

    async def _record(
        self, session: Session, call: Mapping[str, Any], result: Mapping[str, Any]
    ) -> Verdict:
        asked = self._asked.pop((session.id, call["id"]), None)
        if asked is not None:  # it has run, so the host's user has said yes
            await self._do(partial(session.approve, asked, by=_APPROVER))
            await session.acheck(call["name"], call["args"], call=call["id"])
        value, milliseconds = result["value"], result.get("duration_ms")
        duration = None if milliseconds is None else milliseconds / 1000
        failed = bool(result.get("is_error"))
        try:
            recorded = await session.arecord(
                call["id"],
                result=None if failed else value,
                error=_text(value) if failed else None,
                duration=duration,
            )
        except UnknownCallError:
            return _ALLOW  # it was refused, and the host reports that as its result
        if isinstance(value, str) or failed:
            shown: Any = recorded.text
        else:
            shown = value if recorded.result is None else recorded.result
        if shown != value:
            return Verdict(HostDecision.TRANSFORM, transform=Transform("$target", shown))
        return Verdict.warn(message=recorded.advice) if recorded.advice else _ALLOW


_ALLOW = Verdict.allow()


def _text(value: Any) -> str:
    """Return an error as text."""
    return value if isinstance(value, str) else str(value)
