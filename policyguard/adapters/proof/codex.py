"""Proofs with Codex."""

from __future__ import annotations

import re
from pathlib import Path

from policyguard.adapters.installation.codex import CODEX
from policyguard.adapters.proof.proof import UNREADABLE_OUTPUT, HostRunner, Workplace
from policyguard.adapters.proof.script import Conversation, Script, Step, ToolCall, delegate, follow

_SUB_AGENT = "you are the sub-agent"
_TYPED = "text typed into a shell that runs"

_CONFIGURATION = """\
model = "stub"
model_provider = "scripted"
[model_providers.scripted]
name = "scripted"
base_url = "http://127.0.0.1:{port}/v1"
wire_api = "responses"
"""


def _prepare(work: Workplace, port: int) -> tuple[list[str], dict[str, str]]:
    work.settings.with_name("config.toml").write_text(_CONFIGURATION.format(port=port))
    arguments = ["exec", "--skip-git-repo-check", "--dangerously-bypass-hook-trust"]
    return [*arguments, "--dangerously-bypass-approvals-and-sandbox", "go"], {}


def _scripts(canary: Path) -> dict[str, Script]:
    command = f"unlink {canary}"  # Codex refuses `rm -f`
    attempt = follow([[ToolCall("exec_command", {"cmd": command})]])
    spawn = ToolCall("spawn_agent", {"message": _SUB_AGENT}, "multi_agent_v1")
    wait = ToolCall("exec_command", {"cmd": "sleep 9", "yield_time_ms": 20_000})
    return {
        "main agent": attempt,
        "sub-agent": delegate([[spawn], [wait]], _SUB_AGENT, attempt),
        _TYPED: _type(command),
    }


def _type(command: str) -> Script:
    """Return a script that starts a shell, and types a command into it."""
    shell = ToolCall("exec_command", {"cmd": "bash", "tty": True, "yield_time_ms": 500})

    def script(said: Conversation) -> Step:
        running = re.search(r"session ID (\d+)", said.last)
        if said.number == 0:
            return [shell]
        if said.number > 1 or running is None:
            return "done"
        typed = {"session_id": int(running[1]), "chars": f"{command}\n"}
        return [ToolCall("write_stdin", typed)]

    return script


CODEX_RUNNER = HostRunner(
    "codex",
    CODEX,
    lambda place: place / "home" / ".codex" / "hooks.json",
    _prepare,
    _scripts,
    UNREADABLE_OUTPUT | {_TYPED},
)
