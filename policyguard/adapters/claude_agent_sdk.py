"""Claude Agent SDK: hooks of a client or query.

They are Claude Code's own, called in this process, and mean what they mean there.
"""

from __future__ import annotations

from collections import OrderedDict
from functools import partial
from typing import Any

from policyguard.adapters.extras import missing_extra
from policyguard.adapters.hooks import claude_code
from policyguard.adapters.runs import AgentRuns, Price, Usage
from policyguard.adapters.sessions import ServedSessions, SessionRequest
from policyguard.guard.event_loop import run_blocking
from policyguard.guard.guard import Guard

try:
    from claude_agent_sdk import AssistantMessage, HookMatcher
except ModuleNotFoundError as error:
    raise missing_extra(error, "the Claude Agent SDK", "claude-agent-sdk") from None

_COUNTS = ("output_tokens", "cache_read_input_tokens", "cache_creation_input_tokens")
_MAX_COUNTED = 1000
"""Ids of messages that are remembered: their parts come one after the other."""


class PolicyguardHooks(dict[str, list[Any]]):
    """The `hooks` of `ClaudeAgentOptions`; *ask* asks by its `can_use_tool`.

    A run has the id of its Claude session; sub-agents are sessions of their own. `count` takes the
    messages of a run, to count what the model uses, and `price` returns what an answer costs.
    """

    def __init__(self, guard: Guard, *, price: Price | None = None) -> None:
        super().__init__({event: [self._matcher(event)] for event in claude_code.EVENTS})
        self._runs = AgentRuns(guard, price)
        self._sessions = ServedSessions(guard)
        self._counted: OrderedDict[str, None] = OrderedDict()

    def _matcher(self, event: str) -> Any:
        """Return what calls us: a call whose check fails is blocked."""
        if event == "PreToolUse":
            return HookMatcher(hooks=[self._answer], on_failure="block")
        return HookMatcher(hooks=[self._answer])

    async def _answer(self, event: Any, tool_use_id: str | None, context: Any) -> dict[str, Any]:
        answer = partial(claude_code.answer, self._sessions, event)
        return (await run_blocking(self._runs.guard, answer)).output or {}

    async def count(self, message: Any) -> None:
        """Count what the model has used for a message; others than its own do no harm."""
        if not isinstance(message, AssistantMessage) or not message.usage or not message.session_id:
            return
        id_ = message.message_id or ""
        if id_ in self._counted:  # another part of it
            return
        self._counted[id_] = None
        if len(self._counted) > _MAX_COUNTED:
            self._counted.popitem(last=False)
        usage = Usage.read(message.model, message.usage, "input_tokens", *_COUNTS)
        whole = usage.input + usage.cache_read + usage.cache_write
        request = SessionRequest(session=message.session_id)
        await run_blocking(
            self._runs.guard,
            lambda: self._runs.spend(self._sessions.open(request), usage._replace(input=whole)),
        )
