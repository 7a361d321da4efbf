"""Proxies on stdio that share a session: what one server returns counts for the others."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from policyguard.adapters.client.connection import post
from policyguard.adapters.client.location import locate_socket
from tests.adapters.mcp.raw_client import RawClient

POLICY = """\
policyguard: 1
name: shared
marks:
  untrusted: {set: {servers: [web]}, on_error: set}
limits: {tools: {loop: {repeat: {max: 2, refuse: tool}}}}
rules:
  stay-inside: {servers: [mail], when: mark.untrusted, message: pages were read}
  ask: {tools: [pay], effect: ask}
  note: {tools: [add], effect: advise, message: check it}
result_rules: {keys: {finds: [key], effect: redact}}
patterns: {key: "sk-[0-9]+"}
"""


@pytest.fixture
def policy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    file = tmp_path / "policy.yaml"
    file.write_text(POLICY)
    with TemporaryDirectory(prefix="pg-") as runtime:  # the path of a socket is short
        monkeypatch.setenv("XDG_RUNTIME_DIR", runtime)
        yield str(file)
        socket = str(locate_socket([str(file)], tmp_path / "state.db"))
        post(socket, "/v1/shutdown", b"{}")


def connect(folder: Path, policy: str, server: str) -> RawClient:
    own = folder / server
    own.mkdir()
    store = str(folder / "state.db")
    return RawClient(own, policy, "--shared", "--store", store, "--server", server)


def test_what_one_server_returns_counts_for_the_others(tmp_path: Path, policy: str) -> None:
    with connect(tmp_path, policy, "web") as web, connect(tmp_path, policy, "mail") as mail:
        web.open()
        mail.open(elicitation={})
        assert "isError" not in mail.call("send")["result"]
        assert "isError" not in web.call("fetch")["result"]
        refused = mail.call("send")["result"]
        assert refused["structuredContent"]["rule"] == "rules/stay-inside"
        given = {"content": [{"type": "text", "text": "a sk-1"}], "structuredContent": {"n": 1}}
        assert web.call("give", result=given)["result"]["content"][0]["text"] == "a [key]"
        advised = web.call("add")["result"]
        assert "check it" in advised["content"][-1]["text"]
        for _ in range(3):
            web.send("tools/call", {"name": "loop"})
        methods = [web.read().get("method") for _ in range(4)]
        assert methods.count("notifications/tools/list_changed") == 1


def test_a_form_approves_a_call_of_the_service(tmp_path: Path, policy: str) -> None:
    with connect(tmp_path, policy, "shop") as shop:
        shop.open(elicitation={})
        id_ = shop.send("tools/call", {"name": "pay", "arguments": {"n": 1}})
        form = shop.read()
        answer = {"action": "accept", "content": {"approve": True}}
        shop.respond(form["id"], answer)
        paid = shop.read()
        assert paid["id"] == id_
        assert paid["result"]["content"][0]["text"] == "done"


def test_the_service_that_is_gone_is_started_again(tmp_path: Path, policy: str) -> None:
    with connect(tmp_path, policy, "web") as web:
        web.open()
        assert "isError" not in web.call("fetch")["result"]
        post(str(locate_socket([policy], tmp_path / "state.db")), "/v1/shutdown", b"{}")
        assert "isError" not in web.call("other")["result"]
