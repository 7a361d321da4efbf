"""Real hosts whose hooks ask policyguard, driven by a scripted model on loopback."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from policyguard.adapters.installation.settings import hook_command_line
from policyguard.adapters.proof.proof import HostRunner, Workplace, _end_service, _run
from policyguard.adapters.proof.runners import RUNNERS
from policyguard.adapters.proof.script import Script, Step, ToolCall, follow
from policyguard.adapters.proof.scripted_model import ScriptedModel

SHELLS: dict[str, Callable[[str], ToolCall]] = {
    "claude-code": lambda command: ToolCall("Bash", {"command": command, "description": "run"}),
    "codex": lambda command: ToolCall("exec_command", {"cmd": command}),
    "gemini-cli": lambda command: ToolCall("run_shell_command", {"command": command}),
    "copilot-cli": lambda command: ToolCall("bash", {"command": command, "description": "run"}),
    "opencode": lambda command: ToolCall("bash", {"command": command, "description": "run"}),
}
READS: dict[str, Callable[[str], ToolCall]] = {
    "claude-code": lambda path: ToolCall("Read", {"file_path": path}),
    "codex": lambda path: ToolCall("exec_command", {"cmd": f"cat {path}"}),
    "gemini-cli": lambda path: ToolCall("read_file", {"file_path": path}),
    "copilot-cli": lambda path: ToolCall("view", {"path": path}),
    "opencode": lambda path: ToolCall("read", {"filePath": path}),
}
HOSTS = [*SHELLS]


class RealHost:
    """An installed host whose hooks ask policyguard; each run begins a session of its own."""

    def __init__(self, host: str, folder: Path, policy: str, *, wait: int = 0) -> None:
        self.host, self.folder, self.wait = host, folder, wait
        self.runner: HostRunner = RUNNERS[host]
        path = os.environ.get("POLICYGUARD_HOSTS") or None
        program = shutil.which(self.runner.program, path=path)
        if program is None:
            pytest.skip(f"`{self.runner.program}` is neither on PATH nor in POLICYGUARD_HOSTS")
        self._program = program
        self.policy = folder / "policyguard.yaml"
        self.policy.write_text(policy)
        state = folder / ".local" / "state" / "policyguard"
        self.store, self.socket = state / "store.db", folder / "s.sock"
        self.project = folder / "project"
        self.project.mkdir()
        self._runs = 0

    def shell(self, command: str) -> ToolCall:
        return SHELLS[self.host](command)

    def read(self, path: Path) -> ToolCall:
        return READS[self.host](str(path))

    def run(self, *script: Step | Script) -> list[str]:
        """Run the host by a script or its steps; return its requests to the model, as text."""
        self._runs += 1
        place = self.folder / f"run-{self._runs}"
        home = place / "home"
        home.mkdir(parents=True)
        work = Workplace(home, self.project, self.project / "canary", self.runner.settings(place))

        def command(report: bool) -> str:
            return hook_command_line(
                self.host,
                [str(self.policy)],
                self.store,
                self.socket,
                report=report,
                wait=self.wait,
            )

        work.settings.parent.mkdir(parents=True, exist_ok=True)
        work.settings.write_text(self.runner.installation.install("", command, self.wait))
        first, *_ = script
        with ScriptedModel(first if callable(first) else follow(script)).running() as model:
            arguments, environment = self.runner.prepare(work, model.port)
            _run([self._program, *arguments], self.project, home, environment)
        self.end_service()
        return [json.dumps(request, ensure_ascii=False) for request in model.requests]

    def end_service(self) -> None:
        _end_service(self.socket)


def knows(requests: Sequence[str], text: str) -> bool:
    """Whether the model has read a text."""
    return any(text in request for request in requests)


def steps(host: RealHost, *commands: str) -> list[Step]:
    return [[host.shell(command)] for command in commands]


def lines(path: Path) -> list[str]:
    return path.read_text().splitlines() if path.exists() else []
