"""Proofs with Gemini CLI."""

from __future__ import annotations

import json
from pathlib import Path

from policyguard.adapters.installation.gemini_cli import GEMINI_CLI
from policyguard.adapters.proof.proof import UNREADABLE_OUTPUT, HostRunner, Workplace
from policyguard.adapters.proof.script import Script, ToolCall, delegate, follow

_SUB_AGENT = "you are the sub-agent"


def _prepare(work: Workplace, port: int) -> tuple[list[str], dict[str, str]]:
    settings = json.loads(work.settings.read_text()) if work.settings.exists() else {}
    settings["security"] = {"auth": {"selectedType": "gemini-api-key"}}
    settings["privacy"] = {"usageStatisticsEnabled": False}
    work.settings.write_text(json.dumps(settings))
    return ["--yolo", "--model", "gemini-2.5-pro", "-p", "go"], {
        "GOOGLE_GEMINI_BASE_URL": f"http://127.0.0.1:{port}",
        "GEMINI_API_KEY": "none",
        "GEMINI_CLI_TRUST_WORKSPACE": "true",
        "NO_BROWSER": "1",
    }


def _scripts(canary: Path) -> dict[str, Script]:
    attempt = follow([[ToolCall("run_shell_command", {"command": f"rm -f {canary}"})]])
    spawn = [ToolCall("invoke_agent", {"agent_name": "generalist", "prompt": _SUB_AGENT})]
    return {
        "main agent": attempt,
        "sub-agent": delegate([spawn], _SUB_AGENT, attempt),
    }


GEMINI_CLI_RUNNER = HostRunner(
    "gemini",
    GEMINI_CLI,
    lambda place: place / "home" / ".gemini" / "settings.json",
    _prepare,
    _scripts,
    UNREADABLE_OUTPUT,
)
