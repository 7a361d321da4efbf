"""Proofs with OpenCode."""

from __future__ import annotations

import json
from pathlib import Path

from policyguard.adapters.installation.opencode import OPENCODE
from policyguard.adapters.proof.proof import HostRunner, Workplace
from policyguard.adapters.proof.script import Script, ToolCall, delegate, follow

_SUB_AGENT = "you are the sub-agent"


def _prepare(work: Workplace, port: int) -> tuple[list[str], dict[str, str]]:
    provider = {
        "npm": "@ai-sdk/openai-compatible",
        "options": {"baseURL": f"http://127.0.0.1:{port}/v1", "apiKey": "none"},
        "models": {"stub": {"tool_call": True}},
    }
    configuration = {"provider": {"scripted": provider}, "permission": "allow", "share": "disabled"}
    return ["run", "--model", "scripted/stub", "go"], {
        "OPENCODE_CONFIG_CONTENT": json.dumps(configuration),
        "OPENCODE_DISABLE_AUTOUPDATE": "true",
        "OPENCODE_DISABLE_MODELS_FETCH": "true",
        "OPENCODE_DISABLE_LSP_DOWNLOAD": "true",
    }


def _scripts(canary: Path) -> dict[str, Script]:
    attempt = follow(
        [[ToolCall("bash", {"command": f"rm -f {canary}", "description": "clean up"})]]
    )
    task = {"description": "clean up", "prompt": _SUB_AGENT, "subagent_type": "general"}
    spawn = [ToolCall("task", task)]
    return {
        "main agent": attempt,
        "sub-agent": delegate([spawn], _SUB_AGENT, attempt),
    }


OPENCODE_RUNNER = HostRunner(
    "opencode",
    OPENCODE,
    lambda place: place / "home" / ".config" / "opencode" / "plugins" / "policyguard.js",
    _prepare,
    _scripts,
)
