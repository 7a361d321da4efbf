"""Coding agents as clients of the proxy: what their models are shown."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from policyguard.adapters.proof.script import ToolCall, follow
from policyguard.adapters.proof.scripted_model import ScriptedModel
from tests.adapters.mcp.processes import serve_proxy, stdio_proxy

POLICY = """\
policyguard: 1
name: hosts
limits: {default: {repeat: {max: 2, refuse: tool, same: call_and_result}}}
rules:
  note: {tools: [add], effect: advise, message: an even better note}
  never: {tools: [echo], when: "call.args.text == 'x'", message: no echoes here}
"""


def run(command: list[str], folder: Path, environment: dict[str, str]) -> str:
    """Run a host in a process group of its own; return what it printed."""
    process = subprocess.Popen(
        command,
        cwd=folder,
        env={"PATH": os.environ["PATH"], "HOME": str(folder), **environment},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        return process.communicate(timeout=90)[0]
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def find(program: str) -> str:
    found = shutil.which(program, path=os.environ.get("POLICYGUARD_HOSTS") or None)
    if found is None:
        pytest.skip(f"`{program}` is neither on PATH nor in the folder POLICYGUARD_HOSTS")
    return found


def run_claude_code(folder: Path, server: dict[str, Any], port: int) -> str:
    (folder / "mcp.json").write_text(json.dumps({"mcpServers": {"probe": server}}))
    arguments = ["-p", "go", "--mcp-config", "mcp.json", "--strict-mcp-config"]
    return run(
        [find("claude"), *arguments, "--allowedTools", "mcp__probe"],
        folder,
        {
            "ANTHROPIC_BASE_URL": f"http://127.0.0.1:{port}",
            "ANTHROPIC_API_KEY": "none",
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
            "DISABLE_AUTOUPDATER": "1",
            "ENABLE_TOOL_SEARCH": "false",
        },
    )


CODEX_CONFIGURATION = """\
model = "stub"
model_provider = "scripted"
[model_providers.scripted]
name = "scripted"
base_url = "http://127.0.0.1:{port}/v1"
wire_api = "responses"
[mcp_servers.probe]
required = true
"""


def run_codex(folder: Path, server: dict[str, Any], port: int) -> str:
    settings = folder / ".codex" / "config.toml"
    settings.parent.mkdir()
    entry = "".join(
        f"{key} = {json.dumps(value)}\n" for key, value in server.items() if key != "type"
    )
    settings.write_text(CODEX_CONFIGURATION.format(port=port) + entry)
    arguments = ["exec", "--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox"]
    return run([find("codex"), *arguments, "go"], folder, {})


HOSTS: dict[str, tuple[Callable[..., str], Callable[[str, dict[str, Any]], ToolCall]]] = {
    "claude-code": (run_claude_code, lambda tool, args: ToolCall(f"mcp__probe__{tool}", args)),
    "codex": (run_codex, lambda tool, args: ToolCall(tool, args, "mcp__probe")),
}


@pytest.mark.slow
@pytest.mark.parametrize("transport", ["stdio", "http"])
@pytest.mark.parametrize("host", [*HOSTS])
def test_the_model_sees_what_the_policy_says(
    host: str, transport: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    runner, name = HOSTS[host]
    policy = tmp_path / "policy.yaml"
    policy.write_text(POLICY)
    home = tmp_path / "home"
    home.mkdir()
    # Claude Code may begin before its servers answer, and has a tool to wait for them then.
    steps = [[ToolCall("WaitForMcpServers", {})]] if host == "claude-code" else []
    steps += [[name("add", {"a": 1, "b": 2})], [name("echo", {"text": "x"})]]
    steps += [[name("list_cancelled", {})] for _ in range(3)]
    with ScriptedModel(follow(steps)).running() as model:
        if transport == "stdio":
            parameters = stdio_proxy(str(policy))
            server = {"command": parameters.command, "args": parameters.args}
            printed = runner(home, server, model.port)
        else:
            with serve_proxy(str(policy), request.getfixturevalue("http_server")) as address:
                printed = runner(home, {"type": "http", "url": address}, model.port)
    last = json.dumps(model.requests[-1])
    assert "an even better note" in last, printed
    assert "no echoes here" in last
    assert "has been made twice" in last
