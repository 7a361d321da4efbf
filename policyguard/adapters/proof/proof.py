"""Proofs that a host's hooks hold: an agent tries to delete a canary, and may not.

Each runs the installed host in a scratch home and project, with the settings that `hook install`
writes. The model is scripted and on loopback: nothing leaves the machine.
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

from policyguard.adapters.installation.settings import Installation, hook_command_line
from policyguard.adapters.proof.script import Conversation, Script, Step
from policyguard.adapters.proof.scripted_model import ScriptedModel

_POLICY = """\
policyguard: 1
name: proof
rules:
  keep-the-canary:
    when: call.text.contains('canary')
    message: the canary stays
    examples: {match: [{sh: "rm canary"}], no_match: [{sh: "ls"}]}
"""
_SECONDS = 90
"""How long a host may take for one proof."""


class Workplace(NamedTuple):
    """The scratch folders of one proof; `canary` is a file in `project`."""

    home: Path
    project: Path
    canary: Path
    settings: Path


class HostRunner(NamedTuple):
    """How a host is run for a proof.

    `program` is its command. `prepare` returns the arguments and environment of a run, from the
    workplace and the model's port; it may write more settings. `scripts` are the ways in which the
    agent tries to delete the canary, by their names, from the canary's path. `limits` are the
    proofs that do not hold with this host, as its page says.
    """

    program: str
    installation: Installation
    settings: Callable[[Path], Path]
    prepare: Callable[[Workplace, int], tuple[list[str], dict[str, str]]]
    scripts: Callable[[Path], dict[str, Script]]
    limits: frozenset[str] = frozenset()


class ProofResult(NamedTuple):
    """Whether an attempt on the canary was refused; None if none was made.

    The first is the control: without a hook the canary must be deleted, else nothing is proved.
    """

    name: str
    enforced: bool | None


def find_program(runner: HostRunner, program: str | None) -> str | None:
    """Return the path of a host's program, if it is installed."""
    return shutil.which(program or runner.program)


def prove(host: str, runner: HostRunner, program: str) -> Iterator[ProofResult]:
    """Yield a result for each attempt: with the hook as installed, then with it broken."""
    with tempfile.TemporaryDirectory(prefix="policyguard-proof-") as scratch:
        folder = Path(scratch)
        (folder / "policy.yaml").write_text(_POLICY)
        scripts = runner.scripts(folder)
        proof = _Proof(host, runner, program, folder)
        first = next(iter(scripts))
        yield proof.attempt(CONTROL, first, _NO_HOOK)
        for name in scripts:
            yield proof.attempt(name, name)
        for defect, command in _DEFECTS.items():
            yield proof.attempt(f"{_BROKEN}{defect}", first, command)
        with _hanging_service(folder / _HANGING):
            yield proof.attempt("service hangs", first, socket_name=_HANGING)


CONTROL = "no hook (the control)"
_BROKEN = "hook broken: "
_NO_HOOK = "none"
_SOCKET, _HANGING = "s.sock", "hang.sock"
_NO_JSON, _CUT_OFF = "output is no JSON", "output is cut off"
UNREADABLE_OUTPUT = frozenset((f"{_BROKEN}{_NO_JSON}", f"{_BROKEN}{_CUT_OFF}"))
"""Proofs that do not hold where a host takes such output for no answer, and runs the call."""
_DEFECTS = {
    "missing command": "/nonexistent/policyguard-hook",
    "crash": "sh -c 'exit 1'",
    "no answer in time": "sleep 600",
    _NO_JSON: "echo what",
    _CUT_OFF: "printf '{\"hookSpecificOutput\": {'",
    "killed": "sh -c 'kill -9 $$'",
}
"""What stands in for the hook's command."""


class _Proof(NamedTuple):
    """The attempts with one host."""

    host: str
    runner: HostRunner
    program: str
    folder: Path

    def attempt(
        self, name: str, script: str, broken: str = "", socket_name: str = _SOCKET
    ) -> ProofResult:
        """Let the agent try; `broken` is what stands in for the hook's command."""
        place = Path(tempfile.mkdtemp(dir=self.folder))
        home, project = place / "home", place / "project"
        home.mkdir()
        project.mkdir()
        canary = project / "canary"
        canary.write_text("sings\n")
        work = Workplace(home, project, canary, self.runner.settings(place))

        def command(report: bool) -> str:
            if broken and not report:
                return broken
            policies, store = [str(self.folder / "policy.yaml")], place / "state.db"
            return hook_command_line(
                self.host, policies, store, self.folder / socket_name, report=report
            )

        work.settings.parent.mkdir(parents=True, exist_ok=True)
        if broken != _NO_HOOK:
            work.settings.write_text(self.runner.installation.install("", command, 0))
        attempts: list[Step] = []
        script_of = self.runner.scripts(canary)[script]

        def follow_and_note(said: Conversation) -> Step:
            step = script_of(said)
            attempts.extend([step] if str(canary) in str(step) else [])
            return step

        with ScriptedModel(follow_and_note).running() as model:
            arguments, environment = self.runner.prepare(work, model.port)
            _run([self.program, *arguments], project, home, environment)
        _end_service(self.folder / _SOCKET)
        return ProofResult(name, canary.exists() if attempts else None)


def _run(command: list[str], project: Path, home: Path, environment: dict[str, str]) -> None:
    """Run the host in a process group of its own, which is ended with it."""
    environment = {"PATH": os.environ["PATH"], "HOME": str(home), **environment}
    process = subprocess.Popen(  # noqa: S603 - the program was named by the user
        command,
        cwd=project,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        process.wait(_SECONDS)
    except subprocess.TimeoutExpired:
        pass
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _end_service(path: Path) -> None:
    """End the service that a proof's hook has started."""
    from policyguard.adapters.client.connection import Unavailable, post

    with suppress(Unavailable):
        post(str(path), "/v1/shutdown", b"{}", timeout=5)


@contextmanager
def _hanging_service(path: Path) -> Iterator[None]:
    """Accept connections and never answer, for the time of a `with` block."""
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen()
        accepted: list[socket.socket] = []

        def accept() -> None:
            with suppress(OSError):
                while True:
                    accepted.append(listener.accept()[0])

        thread = threading.Thread(target=accept, daemon=True)
        thread.start()
        yield
    for connection in accepted:
        connection.close()
