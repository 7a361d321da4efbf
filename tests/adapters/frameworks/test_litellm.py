"""LiteLLM's proxy with the guardrail, between a client and a scripted model."""

from __future__ import annotations

import json
import os
import secrets
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.util import find_spec
from pathlib import Path
from typing import Any, ClassVar

import pytest

if find_spec("litellm") is None:
    pytest.skip("runs with `make test-frameworks`", allow_module_level=True)
os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"  # before it is imported
pytest.importorskip("litellm")  # without its own warnings

POLICY = """
policyguard: 1
name: gateway
extends: [core]
budgets: {answers: {model_calls: 20}}
rules:
  never: {tools: [forbidden], effect: block, message: nobody may do this}
  models:
    tools: [model_call]
    when: call.args.model == 'secret'
    effect: block
    message: not this model
result_rules:
  mask: {finds: [word], effect: redact}
patterns: {word: 'swordfish-[0-9]{4}'}
"""
CONFIG = """
model_list:
  - model_name: scripted
    litellm_params: &model
      model: openai/scripted
      api_base: "http://127.0.0.1:UPSTREAM/v1"
      api_key: none
  - {model_name: secret, litellm_params: *model}
guardrails:
  - guardrail_name: policyguard
    litellm_params:
      guardrail: policyguard.adapters.litellm.PolicyguardGuardrail
      mode: [pre_call, post_call]
      default_on: true
      policy: policy.yaml
"""
KEY = f"sk-{secrets.token_hex(16)}"
USAGE = {"prompt_tokens": 50, "completion_tokens": 10, "total_tokens": 60}


class Model(BaseHTTPRequestHandler):
    """Calls the tools that the first message of the user names, in one answer."""

    seen: ClassVar[list[Any]] = []

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.seen.append(body["messages"])
        words = body["messages"][0]["content"].split()
        if body["messages"][-1]["role"] != "user" and words[0] != "loop":
            words = []
        calls = [
            {
                "id": f"c-{name}-{len(self.seen)}",
                "type": "function",
                "function": {"name": name, "arguments": '{"path": "/x"}'},
            }
            for name in words
            if name not in ("talk", "loop")
        ]
        reason = "tool_calls" if calls else "stop"
        if body.get("stream"):
            self._stream(calls, reason)
            return
        content = None if calls else "said"
        message = {"role": "assistant", "content": content, "tool_calls": calls or None}
        choice = {"index": 0, "message": message, "finish_reason": reason}
        self._begin("application/json")
        self.wfile.write(self._encode("chat.completion", choice, usage=USAGE))

    def _stream(self, calls: list[Any], reason: str) -> None:
        self._begin("text/event-stream")
        deltas: list[Any] = [{"role": "assistant", "content": "well"}]
        deltas += [{"tool_calls": [{"index": i, **call}]} for i, call in enumerate(calls)]
        for delta in [*deltas, {}]:
            choice = {"index": 0, "delta": delta, "finish_reason": None if delta else reason}
            chunk = self._encode("chat.completion.chunk", choice)
            self.wfile.write(b"data: " + chunk + b"\n\n")
        self.wfile.write(b"data: [DONE]\n\n")

    def _begin(self, kind: str) -> None:
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.end_headers()

    def _encode(self, kind: str, choice: Any, **more: Any) -> bytes:
        known = {"id": f"r{len(self.seen)}", "created": 1, "model": "scripted"}
        return json.dumps({**known, "object": kind, "choices": [choice], **more}).encode()

    def log_message(self, *_: Any) -> None:
        """Say nothing."""


def free_port() -> int:
    with socket.socket() as opened:
        opened.bind(("127.0.0.1", 0))
        return int(opened.getsockname()[1])


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    folder = tmp_path_factory.mktemp("gateway")
    upstream = ThreadingHTTPServer(("127.0.0.1", 0), Model)
    threading.Thread(target=upstream.serve_forever, daemon=True).start()
    (folder / "policy.yaml").write_text(POLICY)
    (folder / "config.yaml").write_text(CONFIG.replace("UPSTREAM", str(upstream.server_port)))
    port = free_port()
    program = Path(sys.executable).with_name("litellm")
    with (folder / "log").open("w") as log:
        process = subprocess.Popen(
            [program, "--config", "config.yaml", "--host", "127.0.0.1", "--port", str(port)],
            cwd=folder,
            env={**os.environ, "LITELLM_LOCAL_MODEL_COST_MAP": "True", "LITELLM_MASTER_KEY": KEY},
            stdout=log,
            stderr=log,
        )
        for _ in range(600):
            try:
                send(port, "GET", "/health/liveliness", "")
                break
            except ConnectionError:
                assert process.poll() is None, (folder / "log").read_text()[-2000:]
                time.sleep(0.2)
        yield port
        process.terminate()
        process.wait(30)
        upstream.shutdown()
        upstream.server_close()


def send(port: int, method: str, path: str, body: str) -> tuple[int, str]:
    connection = HTTPConnection("127.0.0.1", port, timeout=60)
    headers = {"Content-Type": "application/json", "Authorization": f"Bearer {KEY}"}
    connection.request(method, path, body, headers)
    answer = connection.getresponse()
    with closing(connection):
        return answer.status, answer.read().decode()


def ask(port: int, session: str, messages: list[Any], **options: Any) -> Any:
    """Return the choice of an answer, its chunks, or a status with the error's text."""
    body = {"model": "scripted", "messages": messages, "litellm_session_id": session, **options}
    status, text = send(port, "POST", "/v1/chat/completions", json.dumps(body))
    if status != 200:
        return status, text
    if options.get("stream"):
        lines = [line[6:] for line in text.splitlines() if line.startswith("data: {")]
        return [json.loads(line)["choices"][0] for line in lines]
    return json.loads(text)["choices"][0]


def user(text: str) -> dict[str, str]:
    return {"role": "user", "content": text}


def test_forbidden_tool_calls_are_stripped(gateway: int) -> None:
    choice = ask(gateway, "s1", [user("read_file forbidden")])
    assert [call["function"]["name"] for call in choice["message"]["tool_calls"]] == ["read_file"]
    assert "nobody may do this" in choice["message"]["content"]
    assert choice["finish_reason"] == "tool_calls"
    choice = ask(gateway, "s1", [user("forbidden")])
    assert not choice["message"].get("tool_calls")
    assert choice["finish_reason"] == "stop"


def test_streamed_calls_are_stripped_too(gateway: int) -> None:
    chunks = ask(gateway, "s2", [user("read_file forbidden")], stream=True)
    names = [
        call["function"]["name"]
        for chunk in chunks
        for call in chunk["delta"].get("tool_calls") or ()
    ]
    assert names == ["read_file"]
    text = "".join(chunk["delta"].get("content") or "" for chunk in chunks)
    assert text.startswith("well")
    assert "nobody may do this" in text
    chunks = ask(gateway, "s2", [user("read_file list_files")], stream=True)
    assert len([c for c in chunks if c["delta"].get("tool_calls")]) == 2


def test_a_loop_is_refused_and_results_are_edited(gateway: int) -> None:
    messages: list[Any] = [user("loop read_file")]
    for _ in range(10):
        message = ask(gateway, "s3", messages)["message"]
        if not message.get("tool_calls"):
            break
        result = {"role": "tool", "tool_call_id": message["tool_calls"][0]["id"]}
        messages += [message, {**result, "content": "Error: no such file: swordfish-1234"}]
    assert len(messages) == 1 + 4 * 2
    assert "`read_file` was not run." in message["content"]
    last = json.dumps(Model.seen[-1])
    assert "swordfish" not in last  # nor in the results of earlier requests, which come again
    assert last.count("no such file: [word]") == 4
    assert "use what they have returned" in last  # advice


def test_a_model_over_its_budget_is_refused(gateway: int) -> None:
    for _ in range(20):
        assert ask(gateway, "s4", [user("talk")])["message"]["content"] == "said"
    status, text = ask(gateway, "s4", [user("talk")])
    assert status == 429
    assert "budgets/answers" in text


def test_a_model_may_be_forbidden(gateway: int) -> None:
    status, text = ask(gateway, "s5", [user("talk")], model="secret")
    assert status == 403
    assert "not this model" in text
