"""Tells clients when the tools change that a limit has switched off."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Any

from policyguard.adapters.mcp.call_sessions import CallSession, CallSessions
from policyguard.adapters.mcp.messages import Message
from policyguard.guard.host_log import log_failure
from policyguard.model.tool_name import join_tool_name

_MAX_SESSIONS = 4096
"""Sessions whose disabled tools are remembered; the least recently used are forgotten first."""


class ListChanges:
    """The disabled tools of one server, by session, and the listeners to their changes.

    They change only if the policy has a limit that `disables_tools`.
    """

    def __init__(self, server: str, sessions: CallSessions) -> None:
        self._prefix = join_tool_name("", server)
        self._sessions = sessions
        guard = sessions.guard
        self.disables_tools = guard._evaluator.disables_tools and not guard._mode.observe
        self._disabled: OrderedDict[str, frozenset[str]] = OrderedDict()
        self._listeners: dict[str, list[Callable[[], None]]] = {}

    def declare(self, message: Message) -> Message:
        """Return what a server says of itself, saying that its tools may change if they may."""
        result: Any = message.get("result")
        capabilities: Any = result.get("capabilities") if isinstance(result, dict) else None
        tools = capabilities.get("tools") if isinstance(capabilities, dict) else None
        if not (self.disables_tools and isinstance(tools, dict)):
            return message
        if tools.get("listChanged") is True:
            return message
        capabilities = {**capabilities, "tools": {**tools, "listChanged": True}}
        return {**message, "result": {**result, "capabilities": capabilities}}

    def listen(self, session: CallSession, listener: Callable[[], None]) -> Callable[[], None]:
        """Call a function whenever the disabled tools change; return how to stop it."""
        listeners = self._listeners.setdefault(session.id, [])
        listeners.append(listener)

        def stop() -> None:
            listeners.remove(listener)
            if not listeners:
                self._listeners.pop(session.id, None)

        return stop

    def notify(self, session: CallSession) -> None:
        """Tell the listeners of a session if its disabled tools have changed."""
        if not self.disables_tools:
            return
        try:
            names = self._sessions.find_disabled(session)
        except Exception:  # noqa: BLE001 - the calls of these tools are refused all the same
            log_failure("the disabled tools could not be listed")
            return
        disabled = frozenset(name for name in names if name.startswith(self._prefix))
        if disabled == self._disabled.get(session.id, frozenset()):
            return
        self._disabled[session.id] = disabled
        self._disabled.move_to_end(session.id)
        if len(self._disabled) > _MAX_SESSIONS:
            self._disabled.popitem(last=False)
        for listener in [*self._listeners.get(session.id, ())]:
            listener()
