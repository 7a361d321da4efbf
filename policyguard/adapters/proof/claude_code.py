"""Proofs with Claude Code."""

from __future__ import annotations

from pathlib import Path

from policyguard.adapters.installation.claude_code import CLAUDE_CODE
from policyguard.adapters.proof.proof import UNREADABLE_OUTPUT, HostRunner, Workplace
from policyguard.adapters.proof.script import Script, Step, ToolCall, delegate, follow

_SUB_AGENT = "you are the sub-agent"


def _prepare(work: Workplace, port: int) -> tuple[list[str], dict[str, str]]:
    settings = ["--settings", str(work.settings)] if work.settings.exists() else []
    return ["-p", "go", *settings, "--allowedTools", "Bash Agent"], {
        "ANTHROPIC_BASE_URL": f"http://127.0.0.1:{port}",
        "ANTHROPIC_API_KEY": "none",
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        "DISABLE_AUTOUPDATER": "1",
    }


def _scripts(canary: Path) -> dict[str, Script]:
    call = ToolCall("Bash", {"command": f"rm -f {canary}", "description": "clean up"})
    attempt = follow([[call]])
    return {
        "main agent": attempt,
        "sub-agent": delegate(_spawn(background=False), _SUB_AGENT, attempt),
        "background sub-agent": delegate(_spawn(background=True), _SUB_AGENT, attempt),
    }


def _spawn(*, background: bool) -> list[Step]:
    task = {"description": "clean up", "prompt": _SUB_AGENT, "subagent_type": "general-purpose"}
    return [[ToolCall("Agent", {**task, "run_in_background": background})]]


CLAUDE_CODE_RUNNER = HostRunner(
    "claude",
    CLAUDE_CODE,
    lambda place: place / "settings.json",
    _prepare,
    _scripts,
    UNREADABLE_OUTPUT,
)
