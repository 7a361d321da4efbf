"""Proofs: the scripted model, and refusals in the real hosts where these are installed."""

from __future__ import annotations

import json
import os
import shutil
import socket
import struct
from http.client import HTTPConnection
from typing import Any

import pytest

from policyguard.adapters.proof.proof import CONTROL, prove
from policyguard.adapters.proof.runners import RUNNERS
from policyguard.adapters.proof.script import ToolCall, follow
from policyguard.adapters.proof.scripted_model import ScriptedModel

HOLDS = {
    "claude-code": {"main agent", "sub-agent", "background sub-agent"},
    "codex": {"main agent", "sub-agent"},
    "copilot-cli": {"main agent", "sub-agent"},
    "gemini-cli": {"main agent", "sub-agent"},
    "opencode": {"main agent", "sub-agent"},
}

CONVERSATIONS: dict[str, tuple[str, dict[str, Any], dict[str, Any]]] = {
    "/v1/messages": (
        "messages",
        {"role": "user", "content": "go"},
        {"role": "assistant", "content": [{"type": "tool_use", "id": "t", "name": "x"}]},
    ),
    "/v1/chat/completions": (
        "messages",
        {"role": "user", "content": "go"},
        {"role": "assistant", "content": None, "tool_calls": [{"id": "c"}]},
    ),
    "/v1/responses": (
        "input",
        {"type": "message", "role": "user", "content": "go"},
        {"type": "function_call", "name": "x", "arguments": "{}"},
    ),
    "/v1beta/models/m:generateContent": (
        "contents",
        {"role": "user", "parts": [{"text": "go"}]},
        {"role": "model", "parts": [{"functionCall": {"name": "x", "args": {}}}]},
    ),
    "/v1beta/models/m:streamGenerateContent": (
        "contents",
        {"role": "user", "parts": [{"text": "go"}]},
        {"role": "model", "parts": [{"functionCall": {"name": "x", "args": {}}}]},
    ),
}


def ask(port: int, path: str, body: dict[str, Any]) -> str:
    connection = HTTPConnection("127.0.0.1", port)
    connection.request("POST", path, json.dumps(body))
    try:
        return connection.getresponse().read().decode()
    finally:
        connection.close()


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("path", [*CONVERSATIONS])
def test_the_model_follows_its_script_in_every_protocol(path: str, *, stream: bool) -> None:
    key, prompt, call = CONVERSATIONS[path]
    script = follow([[ToolCall("shell", {"command": "ls"})]], final="finished")
    with ScriptedModel(script).running() as model:
        body = {"tools": [{"name": "shell"}], "stream": stream, key: [prompt]}
        first = ask(model.port, path, body)
        second = ask(model.port, path, {**body, key: [prompt, call]})
        without_tools = ask(model.port, path, {key: [prompt]})
    assert "shell" in first
    assert "finished" not in first
    assert "finished" in second
    assert "shell" not in without_tools


def test_a_host_that_is_killed_leaves_no_traceback(capfd: pytest.CaptureFixture[str]) -> None:
    with ScriptedModel(follow([])).running() as model:
        with socket.create_connection(("127.0.0.1", model.port)) as connection:
            linger = struct.pack("ii", 1, 0)  # closing resets the connection
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
            connection.sendall(b"POST /v1/messages HTTP/1.1\r\ncontent-length: 9\r\n\r\n")
        ask(model.port, "/v1/messages", {})
    assert capfd.readouterr().err == ""


@pytest.mark.slow
@pytest.mark.parametrize("host", [*RUNNERS])
def test_refusals_hold_in_the_real_host(host: str) -> None:
    runner, folder = RUNNERS[host], os.environ.get("POLICYGUARD_HOSTS", "")
    program = shutil.which(runner.program, path=folder or None)
    if program is None:
        pytest.skip(f"`{runner.program}` is neither on PATH nor in the folder POLICYGUARD_HOSTS")
    results = dict(prove(host, runner, program))
    assert results.pop(CONTROL) is False, "without a hook the canary is deleted"
    assert results.keys() >= HOLDS[host]
    assert {name for name, enforced in results.items() if not enforced} == runner.limits
