"""The stories that policyguard is for, in the real hosts with a scripted model on loopback."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from policyguard.adapters.installation.settings import hook_command_line
from policyguard.adapters.proof.proof import HostRunner, Workplace, _end_service, _run
from policyguard.adapters.proof.runners import RUNNERS
from policyguard.adapters.proof.script import Conversation, Script, Step, ToolCall, follow
from policyguard.adapters.proof.scripted_model import ScriptedModel
from policyguard.model.event import Admitted, Event, Refused
from policyguard.traces import Reader, expand

pytestmark = pytest.mark.slow

POLICY = """\
policyguard: 1
name: story
extends: [core, self-protection]
budgets:
  steps: {calls: 6, per: session, effect: halt, message: that is enough}
result_rules:
  keys: {finds: ["secret_*"], effect: redact}
"""
SECRET = "ghp_" + "a1B2" * 9
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

    def __init__(self, host: str, folder: Path, policy: str) -> None:
        self.host, self.folder = host, folder
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
                self.host, [str(self.policy)], self.store, self.socket, report=report
            )

        work.settings.parent.mkdir(parents=True, exist_ok=True)
        work.settings.write_text(self.runner.installation.install("", command, 0))
        first, *_ = script
        with ScriptedModel(first if callable(first) else follow(script)).running() as model:
            arguments, environment = self.runner.prepare(work, model.port)
            _run([self._program, *arguments], self.project, home, environment)
        self.end_service()
        return [json.dumps(request, ensure_ascii=False) for request in model.requests]

    def end_service(self) -> None:
        _end_service(self.socket)


@pytest.fixture(params=HOSTS)
def host(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[RealHost]:
    real = RealHost(request.param, tmp_path, POLICY)
    yield real
    real.end_service()


def knows(requests: Sequence[str], text: str) -> bool:
    """Whether the model has read a text."""
    return any(text in request for request in requests)


def steps(host: RealHost, *commands: str) -> list[Step]:
    return [[host.shell(command)] for command in commands]


def lines(path: Path) -> list[str]:
    return path.read_text().splitlines() if path.exists() else []


def decided(host: RealHost, kind: type[Event]) -> int:
    """Return how many calls were admitted or refused so far."""
    return sum(
        isinstance(item, kind)
        for path in expand([host.store.parent / "journal"])
        for item in Reader().read(path)
    )


def test_a_missing_file_is_read_twice(host: RealHost) -> None:
    requests = host.run(*[[host.read(host.project / "missing.txt")]] * 4)
    assert decided(host, Admitted) == 2
    assert decided(host, Refused) == 2
    assert knows(requests, "was not run")


def test_what_was_learned_holds_after_a_restart(host: RealHost) -> None:
    def script(said: Conversation) -> Step:
        if said.number == 2:
            host.end_service()
        return [host.read(host.project / "missing.txt")] if said.number < 4 else "done"

    host.run(script)
    assert decided(host, Admitted) == 2
    assert decided(host, Refused) == 2


def test_what_polls_is_left_alone(host: RealHost) -> None:
    """Gemini CLI itself ends a run that makes the same call five times."""
    (host.project / "status").write_text("pending\n")
    host.run(*steps(host, *["sleep 0.1; cat status"] * 4))
    assert decided(host, Admitted) == 4


def test_the_budget_stops_the_run(host: RealHost) -> None:
    log = host.project / "log"
    host.run(*steps(host, *[f"echo {number} >> {log}" for number in range(9)]))
    assert lines(log) == [str(number) for number in range(6)]


def test_the_agent_can_change_neither_policy_nor_store(host: RealHost) -> None:
    policy, store = host.policy.read_text(), host.store
    host.run(
        *steps(
            host,
            "echo begin",
            f"echo 'policyguard: 1' > {host.policy}",
            f"rm -rf {store.parent}",
            f"sed -i s/halt/advise/ {host.policy}",
        )
    )
    assert host.policy.read_text() == policy
    assert store.exists()


def test_a_secret_in_a_result_does_not_reach_the_model(tmp_path: Path) -> None:
    host = RealHost("claude-code", tmp_path, POLICY)
    (host.project / "notes.txt").write_text(f"the token is {SECRET}\n")
    requests = host.run(
        [host.shell("cat notes.txt")],
        [ToolCall("Read", {"file_path": str(host.project / "notes.txt")})],
    )
    assert knows(requests, "[secret_github_token]")
    assert not knows(requests, SECRET)
