"""Proofs with Copilot CLI."""

from __future__ import annotations

from pathlib import Path

from policyguard.adapters.installation.copilot_cli import COPILOT_CLI
from policyguard.adapters.proof.proof import UNREADABLE_OUTPUT, HostRunner, Workplace
from policyguard.adapters.proof.script import Script, ToolCall, delegate, follow

_SUB_AGENT = "you are the sub-agent"


def _prepare(work: Workplace, port: int) -> tuple[list[str], dict[str, str]]:
    return ["-p", "go", "--allow-all-tools", "--allow-all-paths"], {
        "COPILOT_OFFLINE": "true",
        "COPILOT_PROVIDER_BASE_URL": f"http://127.0.0.1:{port}/v1",
        "COPILOT_MODEL": "stub",
        "COPILOT_AUTO_UPDATE": "false",
    }


def _scripts(canary: Path) -> dict[str, Script]:
    attempt = follow(
        [[ToolCall("bash", {"command": f"rm -f {canary}", "description": "clean up"})]]
    )
    wait = ToolCall("bash", {"command": "sleep 9", "description": "wait"})
    task = {
        "description": "clean up",
        "prompt": _SUB_AGENT,
        "agent_type": "general-purpose",
        "name": "cleaner",
    }
    return {
        "main agent": attempt,
        "sub-agent": delegate([[ToolCall("task", task)]], _SUB_AGENT, attempt),
        "background sub-agent": delegate(
            [[ToolCall("task", {**task, "mode": "background"})], [wait]], _SUB_AGENT, attempt
        ),
    }


COPILOT_CLI_RUNNER = HostRunner(
    "copilot",
    COPILOT_CLI,
    lambda place: place / "home" / ".copilot" / "hooks" / "policyguard.json",
    _prepare,
    _scripts,
    UNREADABLE_OUTPUT,
)
