"""The program that hosts start answers through the service, alone, or refuses."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import threading
from contextlib import suppress
from pathlib import Path

import pytest

from policyguard.adapters.client import hook_command
from tests.adapters.running_service import RunningService

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="needs Unix sockets")

EVENT = {
    "hook_event_name": "PreToolUse",
    "session_id": "s",
    "tool_name": "Bash",
    "tool_input": {"command": "rm canary"},
    "tool_use_id": "t1",
}


def run_hook(
    *options: str, event: object = EVENT, host: str = "claude-code", **environment: str
) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-I", "-S", hook_command.__file__, host, *options]
    return subprocess.run(
        command,
        input=event if isinstance(event, str) else json.dumps(event),
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, **environment},
    )


def denial(run: subprocess.CompletedProcess[str]) -> str:
    assert run.returncode == 0, run.stderr
    specific = json.loads(run.stdout)["hookSpecificOutput"]
    assert specific["permissionDecision"] == "deny"
    return str(specific["permissionDecisionReason"])


def test_it_answers_through_the_service(shared_service: RunningService) -> None:
    assert "the canary stays" in denial(run_hook("--socket", str(shared_service.socket)))


def test_it_starts_the_service(policy_file: Path, tmp_path: Path) -> None:
    sock = tmp_path / "run" / "x.sock"
    options = ["--policy", str(policy_file), "--store", str(tmp_path / "x.db")]
    try:
        run = run_hook(*options, "--socket", str(sock))
        assert "the canary stays" in denial(run)
        allowed = {**EVENT, "tool_input": {"command": "ls"}, "tool_use_id": "t2"}
        run = run_hook(*options, "--socket", str(sock), event=allowed)
        assert (run.returncode, run.stdout) == (0, "")
    finally:
        _shut_down(sock)


def _shut_down(sock: Path) -> None:
    from policyguard.adapters.client.connection import post

    post(str(sock), "/v1/shutdown", b"{}")


def test_it_answers_alone_where_no_service_can_run(policy_file: Path, tmp_path: Path) -> None:
    options = ["--policy", str(policy_file), "--store", str(tmp_path / "x.db")]
    options += ["--socket", "/proc/none/x.sock"]
    assert "the canary stays" in denial(run_hook(*options))
    for number in range(3):  # each in a process of its own
        event = {**EVENT, "tool_name": "search", "tool_input": {}, "tool_use_id": f"s{number}"}
        run = run_hook(*options, event=event)
        assert run.returncode == 0, run.stderr
    assert '"ask"' in run.stdout


@pytest.mark.parametrize(
    ("options", "event", "reason"),
    [
        ([], "not json", "malformed"),
        ([], "", "could not check"),
        (["--polciy", "x"], EVENT, "usage"),
        (["--policy", "/none.yaml"], EVENT, "none.yaml"),
        (["--store", "/proc/none/x.db"], EVENT, "/proc/none"),
    ],
)
def test_what_goes_wrong_refuses_the_call(
    options: list[str], event: object, reason: str, tmp_path: Path
) -> None:
    given = ["--store", str(tmp_path / "x.db"), "--socket", "/proc/none/x.sock", *options]
    run = run_hook(*given, event=event)
    assert run.returncode == 2
    assert reason in run.stderr
    assert "Traceback" not in run.stderr


def test_an_event_that_asks_nothing_never_stops_the_agent(tmp_path: Path) -> None:
    run = run_hook("--report", "--policy", "/none.yaml", "--socket", "/proc/none/x.sock")
    assert run.returncode == 1


def test_an_unknown_host_refuses(tmp_path: Path) -> None:
    run = run_hook("--socket", "/proc/none/x.sock", host="nobody")
    assert run.returncode == 2
    assert "claude-code" in run.stderr


@pytest.mark.slow
def test_a_service_that_hangs_is_not_waited_for(tmp_path: Path) -> None:
    sock = tmp_path / "x.sock"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(sock))
        listener.listen()
        accepted: list[socket.socket] = []
        thread = threading.Thread(target=lambda: accepted.append(listener.accept()[0]))
        thread.start()
        run = run_hook("--socket", str(sock))
        thread.join()
        accepted[0].close()
    assert run.returncode == 2
    assert "in time" in run.stderr


def test_an_answer_that_is_cut_off_is_asked_for_again_elsewhere(
    policy_file: Path, tmp_path: Path
) -> None:
    sock = tmp_path / "x.sock"

    def cut() -> None:
        with suppress(OSError):  # at last, nobody listens
            while True:
                with listener.accept()[0] as connection, suppress(BrokenPipeError):
                    connection.recv(65536)
                    connection.sendall(b"HTTP/1.1 200 OK\r\ncontent-length: 99\r\n\r\n{")

    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(sock))
        listener.listen()
        thread = threading.Thread(target=cut, daemon=True)
        thread.start()
        options = ["--policy", str(policy_file), "--store", str(tmp_path / "x.db")]
        run = run_hook(*options, "--socket", str(sock))
        listener.shutdown(socket.SHUT_RDWR)
        thread.join()
    assert "the canary stays" in denial(run)


def test_the_environment_of_the_agent_changes_nothing(
    shared_service: RunningService, tmp_path: Path
) -> None:
    planted = tmp_path / "planted"
    planted.mkdir()
    (planted / "policyguard.py").write_text("raise SystemExit(0)")
    run = run_hook("--socket", str(shared_service.socket), PYTHONPATH=str(planted))
    assert "the canary stays" in denial(run)
