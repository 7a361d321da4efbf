"""Events as hosts send them."""

from __future__ import annotations

import json
from typing import Any

from policyguard.adapters.hooks.answer import HookAnswer
from policyguard.adapters.hooks.hosts import answer_hook
from policyguard.adapters.sessions import ServedSessions


class ClaudeCodeEvents:
    """One session of Claude Code."""

    session = "5f0c"

    def __init__(self, sessions: ServedSessions) -> None:
        self.sessions = sessions
        self._number = 0
        self._latest: dict[str, Any] = {}
        self.call = ""

    def send(self, event: str, **fields: Any) -> HookAnswer:
        """Send an event, and return the answer."""
        common = {
            "session_id": self.session,
            "transcript_path": "/home/ann/.claude/projects/x/5f0c.jsonl",
            "cwd": "/home/ann/x",
            "prompt_id": "p1",
            "permission_mode": "default",
            "hook_event_name": event,
        }
        body = json.dumps({**common, **fields}).encode()
        return answer_hook(self.sessions, "claude-code", body)

    def before(self, tool: str, args: dict[str, Any], call: str = "", **fields: Any) -> HookAnswer:
        """Send what comes before a call."""
        self._number += 1
        self.call = call or f"toolu_{self._number}"
        self._latest = {"tool_name": tool, "tool_input": args, "tool_use_id": self.call, **fields}
        return self.send("PreToolUse", **self._latest)

    def after(self, response: Any) -> HookAnswer:
        """Send the latest call's result."""
        return self.send("PostToolUse", **self._latest, tool_response=response, duration_ms=12)

    def failed(self, error: str) -> HookAnswer:
        """Send the latest call's failure."""
        return self.send("PostToolUseFailure", **self._latest, error=error, is_interrupt=False)
