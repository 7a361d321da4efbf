"""Proofs with Codex."""

from __future__ import annotations

from pathlib import Path

from policyguard.adapters.installation.codex import CODEX
from policyguard.adapters.proof.proof import HostRunner, Workplace
from policyguard.adapters.proof.script import Script, ToolCall, follow

_SUB_AGENT = "you are the sub-agent"

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
    attempt = [ToolCall("exec_command", {"cmd": f"unlink {canary}"})]  # Codex refuses `rm -f`
    spawn = ToolCall("spawn_agent", {"message": _SUB_AGENT}, "multi_agent_v1")
    wait = ToolCall("exec_command", {"cmd": "sleep 9", "yield_time_ms": 20_000})
    main, sub = follow([[spawn], [wait]]), follow([attempt])
    return {
        "main agent": follow([attempt]),
        "sub-agent": lambda first, number: (sub if _SUB_AGENT in first else main)(first, number),
    }


CODEX_RUNNER = HostRunner(
    "codex",
    CODEX,
    lambda place: place / "home" / ".codex" / "hooks.json",
    _prepare,
    _scripts,
    lambda settings: settings,
)
