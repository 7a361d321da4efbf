"""The service decides on calls as a guard in the process does, and survives what befalls it."""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import re
import socket
import stat
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Any, Self

import pytest
import uvicorn
from uvicorn.server import ServerState

from policyguard import Guard
from policyguard.adapters.client.connection import Unavailable, post
from policyguard.adapters.service.connection import OwnConnection
from tests.adapters.conftest import StartService
from tests.adapters.running_service import RunningService

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="needs Unix sockets")

_numbers = itertools.count(1)


@pytest.fixture
def session() -> str:
    """The name of a session that no other test has."""
    return f"session {next(_numbers)}"


def test_a_call_is_checked_and_recorded(shared_service: RunningService, session: str) -> None:
    answer = shared_service.check(session, "read", args={"path": "a"}, call="h1")
    assert (answer["call"], answer["effect"], answer["allowed"]) == ("h1", "allow", True)
    status, recorded = shared_service.ask("/v1/record", session=session, call="h1", result="text")
    assert status == 200
    assert recorded["text"] == "text"
    assert recorded["outcome"]["ok"]
    assert recorded["counted"]


def test_a_refusal_says_why(shared_service: RunningService, session: str) -> None:
    answer = shared_service.check(session, "delete", args={"path": "canary"})
    assert not answer["allowed"]
    assert [one["id"] for one in answer["violations"]] == ["rules/keep"]
    assert "the canary stays" in answer["message"]
    assert answer["structured"]["status"] == "blocked"


def test_answers_are_those_of_a_guard(start_service: StartService, policy_over_core: Path) -> None:
    service = start_service(policy=str(policy_over_core))
    session = Guard.load(policy_over_core).session("s")
    for number in range(8):
        decision = session.check("read", {"path": "missing"})
        answer = service.check("s", "read", args={"path": "missing"}, call=f"h{number}")
        assert answer["message"] == decision.message
        assert answer["effect"] == decision.effect
        if not decision:
            continue
        recorded = session.record(decision, error="no such file: missing")
        _, reported = service.ask(
            "/v1/record", session="s", call=f"h{number}", error="no such file: missing"
        )
        assert reported["text"] == recorded.text


def test_a_call_that_asks_runs_once_it_is_approved(
    shared_service: RunningService, session: str
) -> None:
    for number in range(2):
        assert shared_service.check(session, "search", args={"q": str(number)})["allowed"]
    asked = shared_service.check(session, "search", args={"q": "2"}, call="h2")
    assert asked["effect"] == "ask"
    status, answer = shared_service.ask("/v1/approve", session=session, call="h2", by="ann")
    assert (status, answer) == (200, {"approved": True})
    assert shared_service.check(session, "search", args={"q": "2"}, call="h2")["allowed"]
    status, problem = shared_service.ask("/v1/approve", session=session, call="h9", by="ann")
    assert status == 404
    assert "check it again" in problem["detail"]


def test_a_yes_may_be_remembered_and_taken_back(
    shared_service: RunningService, session: str
) -> None:
    for number in range(2):
        shared_service.check(session, "search", args={"q": number})
    shared_service.check(session, "search", args={"q": 2}, call="h2")
    fields = {"by": "ann", "remember": "tool", "expires": 600}
    status, answer = shared_service.ask("/v1/approve", session=session, call="h2", **fields)
    assert (status, answer) == (200, {"approved": True})
    (grant,) = json.loads(_read(shared_service, "/v1/grants"))
    status, answer = shared_service.ask("/v1/revoke", id=grant["id"], by="ann")
    assert (status, answer) == (200, {"revoked": True})
    assert json.loads(_read(shared_service, "/v1/grants")) == []


def test_the_host_sets_and_clears_marks(shared_service: RunningService, session: str) -> None:
    assert not shared_service.check(session, "push")["allowed"]
    assert shared_service.ask("/v1/mark", session=session, mark="reviewed")[0] == 200
    assert shared_service.check(session, "push")["allowed"]
    assert shared_service.ask("/v1/unmark", session=session, mark="reviewed")[0] == 200
    assert not shared_service.check(session, "push")["allowed"]
    status, problem = shared_service.ask("/v1/mark", session=session, mark="reviwed")
    assert status == 400
    assert "reviewed" in problem["detail"]


def test_results_come_back_as_result_rules_leave_them(
    shared_service: RunningService, session: str
) -> None:
    shared_service.check(session, "read", call="h1")
    token = "ghp_" + "a1B2" * 9
    result = {"owner": "ann", "key": token}
    _, recorded = shared_service.ask("/v1/record", session=session, call="h1", result=result)
    assert token not in json.dumps(recorded)
    assert recorded["result"] == {"owner": "ann", "key": "[secret_github_token]"}
    assert [one["id"] for one in recorded["violations"]] == ["result_rules/keys"]


def test_half_of_a_surrogate_pair_is_text_as_any(
    shared_service: RunningService, session: str
) -> None:
    args = {"path": "a\ud83d"}
    assert shared_service.check(session, "read", args=args, call="h1")["allowed"]
    key = "ghp_" + "a1B2" * 9 + " \ude00"
    _, recorded = shared_service.ask("/v1/record", session=session, call="h1", result={"key": key})
    assert recorded["result"] == {"key": "[secret_github_token] \ude00"}


def test_sub_agents_charge_their_parent(shared_service: RunningService, session: str) -> None:
    effects = [
        shared_service.check(f"{session}{number}", "search", parent=session, args={"q": number})
        for number in range(3)
    ]
    assert [one["effect"] for one in effects] == ["allow", "allow", "ask"]


@pytest.mark.parametrize(
    ("body", "status", "detail"),
    [
        (b"{", 400, "truncated"),
        (b'{"session": 1}', 400, "`session` must be a text, not an integer"),
        (b'{"session": "s", "tool": "t", "arguments": {}}', 400, "did you mean `args`?"),
        (b'{"session": "s", "tool": "t", "args": []}', 400, "`args` must be an object, not a list"),
        (b'{"session": "s", "tool": "t", "call": "c1"}', 400, "c1"),
        (b'{"session": "s", "tool": "t", "args": {"x": 1e999}}', 400, "out of range"),
        (b'{"session": "s", "tool": "t", "args": %b' % (b'{"x": ' * 50_000), 400, "recursion"),
    ],
)
def test_bad_requests_are_refused(
    shared_service: RunningService, body: bytes, status: int, detail: str
) -> None:
    got, _, answer = post(str(shared_service.socket), "/v1/check", body)
    assert got == status
    assert detail in json.loads(answer)["detail"]


def test_a_body_that_is_too_large_is_refused(shared_service: RunningService) -> None:
    body = b'{"session": "%s"}' % (b"x" * 9_000_000)
    assert post(str(shared_service.socket), "/v1/check", body)[0] == 413


class RawConnection:
    """A connection that sends what a test wants, in pieces."""

    def __init__(self, service: RunningService) -> None:
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._socket.settimeout(30)
        self._socket.connect(str(service.socket))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    def send(self, *pieces: bytes) -> None:
        """Send pieces that arrive one by one."""
        for piece in pieces:
            self._socket.sendall(piece)
            time.sleep(0.05)

    def read(self) -> tuple[int, Any]:
        """Return the status and the body of the next answer."""
        data = self._read_until(b"\r\n\r\n")
        length = int(data.lower().partition(b"content-length: ")[2].partition(b"\r")[0])
        body = self._socket.recv(length, socket.MSG_WAITALL)
        return int(data.split()[1]), json.loads(body)

    def _read_until(self, end: bytes) -> bytes:
        data = b""
        while not data.endswith(end):
            byte = self._socket.recv(1)
            assert byte, data
            data += byte
        return data


def raw(path: str, *headers: bytes, version: bytes = b"1.1", **fields: Any) -> tuple[bytes, bytes]:
    """Return the head and the body of a request."""
    body = json.dumps(fields).encode()
    lines = [b"POST %b HTTP/%b" % (path.encode(), version), b"host: x", *headers]
    return b"\r\n".join([*lines, b"content-length: %d\r\n\r\n" % len(body)]), body


def preview(tool: str = "delete", session: str = "s", **fields: Any) -> tuple[bytes, bytes]:
    return raw("/v1/preview", session=session, tool=tool, args={"path": "canary"}, **fields)


@pytest.mark.parametrize(
    "request_",
    [
        preview(),
        pytest.param(preview("read"), marks=pytest.mark.slow),
        preview(unknown=1),
        raw("/v1/record", session="s", call="nobody", result=""),
        pytest.param(raw("/v1/mark", session="s", mark="nobody"), marks=pytest.mark.slow),
        raw("/v1/nothing"),
    ],
)
def test_a_request_in_pieces_has_the_same_answer(
    shared_service: RunningService, request_: tuple[bytes, bytes]
) -> None:
    """One that arrives whole takes a shorter way."""
    shared_service.ask("/v1/sessions", session="s")
    head, body = request_
    with RawConnection(shared_service) as connection:
        for pieces in ([head + body], [head, body], [head[:20], head[20:] + body[:5], body[5:]]):
            connection.send(*pieces)
        whole, *others = [connection.read() for _ in range(3)]
    assert others == [whole, whole]


def test_requests_sent_at_once_are_answered_in_order(
    shared_service: RunningService, session: str
) -> None:
    """Of several sessions, of which the first must be opened and so takes the longer way."""
    shared_service.ask("/v1/sessions", session=session)
    sessions = [f"new {session}", session, session, f"newer {session}", session]
    requests = [
        raw("/v1/check", session=name, tool="read", args={}, call=f"h{number}")
        for number, name in enumerate(sessions)
    ]
    with RawConnection(shared_service) as connection:
        connection.send(b"".join(head + body for head, body in requests))
        answers = [connection.read() for _ in sessions]
    assert [status for status, _ in answers] == [200] * 5
    assert [answer["call"] for _, answer in answers] == [f"h{number}" for number in range(5)]


def test_a_client_that_wants_no_more_is_answered_and_let_go(
    shared_service: RunningService, session: str
) -> None:
    shared_service.ask("/v1/sessions", session=session)
    for request_ in (
        raw("/v1/turn", b"connection: close", session=session),
        raw("/v1/turn", session=session, version=b"1.0"),
    ):
        with RawConnection(shared_service) as connection:
            connection.send(b"".join(request_))
            assert connection.read() == (200, {"ok": True})
            assert connection._socket.recv(1) == b""


def test_a_client_that_reads_nothing_is_waited_for(
    shared_service: RunningService, session: str
) -> None:
    """Its answers do not pile up in the service, and others go on."""
    shared_service.ask("/v1/sessions", session=session)
    requests = b"".join(preview(session=session)) * 100_000
    with RawConnection(shared_service) as connection:
        connection._socket.settimeout(1)
        with pytest.raises(TimeoutError):
            connection._socket.sendall(requests)
        assert shared_service.ask("/v1/turn", session=session) == (200, {"ok": True})


def test_a_head_without_end_is_not_read_on(shared_service: RunningService, session: str) -> None:
    with RawConnection(shared_service) as connection:
        connection._socket.sendall(b"POST /v1/check HTTP/1.1\r\n")
        with suppress(ConnectionError):
            while True:
                connection._socket.sendall(b"a: %b\r\n" % (b"b" * 10_000))
    assert shared_service.ask("/v1/turn", session=session) == (200, {"ok": True})


@pytest.mark.slow
@pytest.mark.parametrize("sent", [b"", b"POST /v1/check HTTP/1.1\r\nhos"])
def test_a_client_that_sends_no_head_is_let_go(shared_service: RunningService, sent: bytes) -> None:
    with RawConnection(shared_service) as connection:
        connection._socket.sendall(sent)
        with suppress(ConnectionResetError):
            assert connection._socket.recv(1) == b""


@pytest.mark.slow
def test_a_client_that_sends_no_body_is_told_so(
    shared_service: RunningService, session: str
) -> None:
    head, _ = raw("/v1/check", session=session, tool="t")
    with RawConnection(shared_service) as connection:
        connection.send(head)
        assert connection.read()[0] == 408


def test_a_connection_of_another_user_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("policyguard.adapters.service.connection._is_own_peer", lambda _: False)

    async def connect() -> bytes:
        failures: list[dict[str, Any]] = []
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, context: failures.append(context))
        ours, theirs = socket.socketpair()
        theirs.setblocking(False)
        config = uvicorn.Config(lambda *_: None, log_config=None)
        config.load()
        await loop.connect_accepted_socket(lambda: OwnConnection(config, ServerState(), {}), ours)
        data = await loop.sock_recv(theirs, 1)
        theirs.close()
        assert failures == []
        return data

    assert asyncio.run(connect()) == b""


def test_the_socket_is_private(shared_service: RunningService) -> None:
    assert stat.S_IMODE(shared_service.socket.stat().st_mode) == 0o600
    assert stat.S_IMODE(shared_service.socket.parent.stat().st_mode) == 0o700


def test_a_second_service_at_the_same_socket_does_not_start(shared_service: RunningService) -> None:
    run = subprocess.run(shared_service._command, capture_output=True, text=True, check=False)
    assert run.returncode == 2
    assert "runs at" in run.stderr


def test_after_a_crash_the_next_service_goes_on(service: RunningService) -> None:
    assert service.check("s", "search", args={"q": 1}, call="h1")["allowed"]
    service.kill()
    assert service.socket.exists()  # it is stale
    service.start()
    repeated = service.check("s", "search", args={"q": 1}, call="h1", retry=True)
    assert repeated["allowed"]  # and is not counted again
    assert service.check("s", "search", args={"q": 2}, call="h2")["allowed"]
    assert service.check("s", "search", args={"q": 3}, call="h3")["effect"] == "ask"
    status, recorded = service.ask("/v1/record", session="s", call="h1", result="found")
    assert (status, recorded["counted"]) == (200, True)


def test_a_repeated_check_of_another_call_is_refused(
    shared_service: RunningService, session: str
) -> None:
    shared_service.check(session, "search", args={"q": 1}, call="h1")
    status, problem = shared_service.ask(
        "/v1/check", session=session, tool="delete", args={"path": "x"}, call="h1", retry=True
    )
    assert status == 400
    assert "in flight" in problem["detail"]


def test_clients_at_once_never_overshoot_a_budget(
    shared_service: RunningService, session: str
) -> None:
    allowed: list[str] = []

    def ask(client: int) -> None:
        for number in range(5):
            answer = shared_service.check(session, "search", args={"q": f"{client}.{number}"})
            allowed.extend([answer["call"]] if answer["allowed"] else [])

    threads = [threading.Thread(target=ask, args=(client,)) for client in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(allowed) == 2  # the third asks


def test_it_ends_when_it_is_idle(start_service: StartService) -> None:
    service = start_service("--idle", "1")
    assert service.process.wait(60) == 0
    assert not service.socket.exists()


def test_a_port_needs_its_token(policy_file: Path, tmp_path: Path) -> None:
    token_file = tmp_path / "token"
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [sys.executable, "-m", "policyguard", "serve", "--policy", str(policy_file)]
    command += ["--store", str(tmp_path / "p.db"), "--port", str(port)]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    assert run.returncode == 2
    assert "--token-file" in run.stderr
    command += ["--token-file", str(token_file)]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stderr is not None
            assert f"http://127.0.0.1:{port}" in process.stderr.readline()
            token = token_file.read_text()  # what is announced can be asked at once
            assert [_get(port, ""), _get(port, "x"), _get(port, token)] == [401, 401, 200]
            assert _get(port, token, scheme="bearer") == 200
            assert stat.S_IMODE(token_file.stat().st_mode) == 0o600
            second = subprocess.run(command, capture_output=True, text=True, check=False)
            assert second.returncode == 2
            assert "another --port" in second.stderr
            assert "serving" not in second.stderr
        finally:
            process.terminate()


def _get(port: int, token: str, scheme: str = "Bearer") -> int:
    with socket.create_connection(("127.0.0.1", port)) as connection:
        head = f"GET /v1/health HTTP/1.1\r\nhost: x\r\nauthorization: {scheme} {token.strip()}\r\n"
        connection.sendall(f"{head}connection: close\r\n\r\n".encode())
        return int(connection.recv(65536).split()[1])


def test_a_token_that_others_may_read_is_refused(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("x" * 40)
    token.chmod(0o644)
    command = [sys.executable, "-m", "policyguard", "serve", "--policy", "core", "--port", "1"]
    command += ["--token-file", str(token), "--store", str(tmp_path / "s.db")]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    assert run.returncode == 2
    assert "chmod 600" in run.stderr


def test_health_metrics_and_the_description_are_served(service: RunningService) -> None:
    service.check("s", "read")
    service.check("s", "delete", args={"path": "canary"})
    pages = {path: _read(service, path) for path in ("/v1/health", "/metrics", "/openapi.json")}
    health = json.loads(pages["/v1/health"])
    assert (health["status"], health["policy"], health["sessions"]) == ("ok", "served", 1)
    assert health["pid"] == service.process.pid
    metrics = pages["/metrics"].decode()
    assert 'policyguard_decisions_total{effect="block"} 1.0' in metrics
    assert 'policyguard_violations_total{effect="block",entry="rules/keep"} 1.0' in metrics
    assert 'policyguard_request_seconds_bucket{le="+Inf",path="/v1/check"} 2.0' in metrics
    assert 'policyguard_request_seconds_count{path="/v1/check"} 2.0' in metrics
    age = re.search(r"^policyguard_constraints_age_seconds (\S+)$", metrics, re.MULTILINE)
    assert age is not None
    assert 0 < float(age[1]) < 60
    paths = json.loads(pages["/openapi.json"])["paths"]
    assert {"/v1/check", "/v1/record", "/v1/turn", "/v1/health", "/metrics"} <= {*paths}


def _read(service: RunningService, path: str) -> bytes:
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(str(service.socket))
        connection.sendall(f"GET {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n".encode())
        received = b""
        while chunk := connection.recv(65536):
            received += chunk
    head, _, body = received.partition(b"\r\n\r\n")
    assert head.split()[1] == b"200", head
    return body


def test_the_client_imports_next_to_nothing() -> None:
    code = """
import sys
before = set(sys.modules)
from policyguard.adapters.client.hook_command import main
print(*sorted(set(sys.modules) - before))
"""
    run = subprocess.run(
        [sys.executable, "-S", "-c", code],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "PYTHONPATH": "."},
    )
    loaded = {name for name in run.stdout.split() if not name.startswith(("policyguard", "_"))}
    assert loaded <= {"os", "os.path", "stat", "posixpath", "genericpath", "time"}, loaded


def test_a_service_starts_without_the_compiler() -> None:
    """Its policy is cached, and a hook may wait for it."""
    code = "import policyguard.adapters.service.server, sys; print(*sys.modules)"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    heavy = {"policyguard.compiler.pipeline", "policyguard.lint", "celpy", "jsonschema", "yaml"}
    assert not heavy & {*run.stdout.split()}


def test_no_service_is_said_so(tmp_path: Path) -> None:
    with pytest.raises(Unavailable):
        post(str(tmp_path / "none.sock"), "/v1/check", b"{}")


def test_a_file_in_the_socket_s_place_is_kept(tmp_path: Path) -> None:
    file = tmp_path / "notes.txt"
    file.write_text("precious\n")
    command = [sys.executable, "-m", "policyguard", "serve", "--policy", "core"]
    command += ["--store", str(tmp_path / "s.db"), "--socket", str(file)]
    run = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert run.returncode == 2
    assert "a file of another kind; use another --socket" in run.stderr
    assert file.read_text() == "precious\n"
