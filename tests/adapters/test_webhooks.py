"""Calls that wait are posted, signed, until they are received; receivers answer them."""

from __future__ import annotations

import base64
import hashlib
import hmac
import http.server
import json
import os
import socket
import subprocess
import sys
import threading
import time
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from policyguard.adapters.service.webhooks import read_secret
from policyguard.model.policy import Webhook
from tests.adapters.conftest import StartService

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="needs Unix sockets")

ROOT = Path(__file__).parents[2]
SECRET = "a secret of many bytes"  # noqa: S105 - of this test
POLICY = """
policyguard: 1
name: posted
patterns: {token: "tok_[a-z]+"}
journal: {redact: [token], args: keep}
approvals:
  webhook: {url: "http://127.0.0.1:PORT/policyguard", secret_env: WEBHOOK_SECRET, timeout: 5s}
rules:
  deploys: {tools: [deploy], effect: ask}
"""


class Receiver(http.server.ThreadingHTTPServer):
    """Keeps what it gets; answers the first requests with the `statuses` given."""

    def __init__(self, port: int = 0) -> None:
        super().__init__(("127.0.0.1", port), _Handler)
        self.got: list[tuple[dict[str, str], bytes]] = []
        self.statuses: list[int] = []
        threading.Thread(target=self.serve_forever, daemon=True).start()

    def wait(self, count: int) -> list[dict[str, Any]]:
        deadline = time.monotonic() + 30
        while len(self.got) < count and time.monotonic() < deadline:
            time.sleep(0.01)
        assert len(self.got) == count
        return [json.loads(body) for _, body in self.got]


class _Handler(http.server.BaseHTTPRequestHandler):
    server: Receiver

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        self.server.got.append(({k.lower(): v for k, v in self.headers.items()}, body))
        self.send_response(self.server.statuses.pop(0) if self.server.statuses else 200)
        self.send_header("content-length", "0")
        self.send_header("location", "/elsewhere")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def receiver(monkeypatch: pytest.MonkeyPatch) -> Iterator[Receiver]:
    monkeypatch.setenv("WEBHOOK_SECRET", SECRET)
    server = Receiver()
    yield server
    server.shutdown()
    server.server_close()


@pytest.fixture
def policy_file(tmp_path: Path, receiver: Receiver) -> Path:
    file = tmp_path / "policy.yaml"
    file.write_text(POLICY.replace("PORT", str(receiver.server_port)))
    return file


def test_a_call_and_its_answer_are_posted(start_service: StartService, receiver: Receiver) -> None:
    service = start_service()
    args = {"to": "shop", "key": "tok_abc"}
    service.check("s", "deploy", args=args, call="h1", agent="clerk")
    (asked,) = receiver.wait(1)
    assert asked["type"] == "call.asked"
    assert asked["question"]["args"] == {"to": "shop", "key": "[token]"}
    service.ask("/v1/deny", session="s", call="h1", by="ann", message="no", agent="clerk")
    denied = receiver.wait(2)[1]
    assert (denied["type"], denied["by"], denied["message"]) == ("call.denied", "ann", "no")
    for headers, body in receiver.got:
        timestamp = headers["webhook-timestamp"]
        assert abs(time.time() - int(timestamp)) < 60
        signed = f"{headers['webhook-id']}.{timestamp}.".encode() + body
        digest = hmac.digest(SECRET.encode(), signed, hashlib.sha256)
        assert headers["webhook-signature"] == f"v1,{base64.b64encode(digest).decode()}"
        assert headers["webhook-id"] == json.loads(body)["id"]


def test_what_is_not_received_is_sent_again(
    start_service: StartService, receiver: Receiver
) -> None:
    receiver.statuses = [503, 302]
    start_service().check("s", "deploy", args={"to": "x"}, call="h1")
    receiver.wait(3)
    assert len({headers["webhook-id"] for headers, _ in receiver.got}) == 1


def test_a_killed_service_sends_what_still_waits(
    start_service: StartService, receiver: Receiver
) -> None:
    service = start_service()
    service.check("s", "deploy", args={"to": "x"}, call="h1")
    receiver.wait(1)
    service.process.kill()
    service.process.wait()
    start_service()
    first, again = receiver.wait(2)
    assert first == again  # with the same id, so that it is acted on once


WEBHOOK = Webhook(url="http://127.0.0.1:1/", secret_env="WEBHOOK_SECRET", timeout=1, retry_for=1)  # noqa: S106 - a name


@pytest.mark.parametrize("secret", ["", "short", "whsec_!"])
def test_a_secret_that_will_not_do_is_none(secret: str, caplog: pytest.LogCaptureFixture) -> None:
    assert read_secret(WEBHOOK, {"WEBHOOK_SECRET": secret}) is None
    assert "$WEBHOOK_SECRET is not set" in caplog.text


def test_without_a_secret_nothing_is_sent(
    start_service: StartService, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WEBHOOK_SECRET", "whsec_!")
    service = start_service()
    service.check("s", "deploy", args={"to": "x"}, call="h1")
    service.process.terminate()
    service.process.wait()
    assert service.process.stderr is not None
    assert "$WEBHOOK_SECRET is not set" in service.process.stderr.read()
    assert receiver.got == []


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


@pytest.fixture
def example(tmp_path: Path) -> Iterator[Any]:
    """Runs an example of `deploy/webhooks`."""
    started: list[subprocess.Popen[str]] = []

    def run(name: str, port: int, **environment: str) -> None:
        command = [sys.executable, str(ROOT / "deploy" / "webhooks" / name), str(port)]
        environ = os.environ | {"POLICYGUARD_WEBHOOK_SECRET": SECRET, **environment}
        socket_path = str(tmp_path / "run" / "s.sock")
        started.append(subprocess.Popen([*command, socket_path], env=environ, text=True))
        while True:
            try:
                socket.create_connection(("127.0.0.1", port)).close()
                return
            except OSError:
                time.sleep(0.02)

    yield run
    for process in started:
        process.kill()
        process.wait()


def test_the_plain_receiver_answers(
    start_service: StartService, policy_file: Path, example: Any
) -> None:
    port = free_port()
    policy_file.write_text(POLICY.replace("PORT", str(port)))
    service = start_service()
    example("receiver.py", port)
    for call, to in (("h1", "staging"), ("h2", "live")):
        service.check("s", "deploy", args={"to": to}, call=call)
    call = {"tool": "deploy", "args": {"to": "staging"}, "call": "h3", "wait": 30}
    assert service.ask("/v1/check", session="s", **call)[1]["allowed"]
    assert service.check("s", "deploy", args={"to": "live"}, call="h4")["effect"] == "ask"


def test_a_click_on_slack_answers(
    start_service: StartService, policy_file: Path, example: Any, receiver: Receiver
) -> None:
    port = free_port()
    policy_file.write_text(POLICY.replace("PORT", str(port)))
    service = start_service()
    api = f"http://127.0.0.1:{receiver.server_port}/"
    example(
        "slack.py",
        port,
        SLACK_API=api,
        SLACK_BOT_TOKEN="xoxb-1",  # noqa: S106 - of no one
        SLACK_SIGNING_SECRET="signs",  # noqa: S106 - of no one
        SLACK_CHANNEL="C1",
    )
    service.check("s", "deploy", args={"to": "<!channel>"}, call="h1")
    receiver.statuses = []
    (shown,) = receiver.wait(1)
    assert shown["channel"] == "C1"
    assert {block["text"]["type"] for block in shown["blocks"] if "text" in block} == {"plain_text"}
    button = shown["blocks"][-1]["elements"][0]
    click = {"actions": [button], "user": {"id": "U1", "username": "ann"}}
    body = urllib.parse.urlencode({"payload": json.dumps(click)}).encode()
    for signing, status in (("wrong", 401), ("signs", 200)):
        timestamp = str(int(time.time()))
        signed = b"v0:" + timestamp.encode() + b":" + body
        signature = "v0=" + hmac.new(signing.encode(), signed, hashlib.sha256).hexdigest()
        request = urllib.request.Request(
            f"http://127.0.0.1:{port}/slack",
            body,
            {"x-slack-request-timestamp": timestamp, "x-slack-signature": signature},
        )
        try:
            with urllib.request.urlopen(request) as response:  # noqa: S310 - to this test
                found = response.status
        except urllib.error.HTTPError as error:
            found = error.code
        assert found == status
    call = {"tool": "deploy", "args": {"to": "<!channel>"}, "call": "h2", "wait": 30}
    assert service.ask("/v1/check", session="s", **call)[1]["allowed"]
