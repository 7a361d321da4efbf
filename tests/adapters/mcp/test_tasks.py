"""Tasks of a real server and a real client on the TypeScript SDK, with the proxy and without."""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.adapters.mcp.processes import PROXY, free_port, serve_proxy
from tests.adapters.mcp.test_other_servers import find_package

pytestmark = pytest.mark.slow

CLIENT = str(Path(__file__).with_name("task_client.mjs"))
POLICY = """\
policyguard: 1
name: tasks
budgets: {calls: {calls: 100}}
patterns: {key: "sk-[0-9]+"}
result_rules: {keys: {finds: [key], effect: redact}}
"""


def run_client(*target: str) -> Any:
    """Run tasks on a server; return what the client sees of them."""
    node, sdk = find_package("sdk")
    command = [node, CLIENT, str(sdk), *target]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return json.loads(re.sub(r"\b[0-9a-f]{32}\b", "TASK", done.stdout))


@contextmanager
def serve_everything() -> Iterator[str]:
    """Run the server over HTTP; its address."""
    node, package = find_package("server-everything")
    port = free_port()
    process = subprocess.Popen(
        [node, str(package / "dist" / "index.js"), "streamableHttp"],
        env=os.environ | {"PORT": str(port)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        while True:
            assert process.poll() is None
            try:
                socket.create_connection(("localhost", port), 1).close()
                break
            except OSError:
                time.sleep(0.05)
        yield f"http://localhost:{port}/mcp"
    finally:
        process.terminate()
        process.wait()


def assert_redacted(direct: Any, proxied: Any) -> None:
    """The client sees the same, but for what the rule redacts, whenever it asks for it."""
    assert direct["steps"][:3] == ["created", "working", "completed"]
    assert "input_required" in direct["asked"]
    assert "sk-123" in json.dumps(direct["again"])
    assert proxied == json.loads(json.dumps(direct).replace("sk-123", "[key]"))


def assert_counted_once(store: Path) -> None:
    (journal,) = (store.parent / "journal").glob("*.jsonl")
    kinds = [json.loads(line)["event"] for line in journal.read_text().splitlines()]
    assert kinds.count("admitted") == kinds.count("completed") == 3, kinds


def test_tasks_on_stdio(tmp_path: Path) -> None:
    node, package = find_package("server-everything")
    server = [node, str(package / "dist" / "index.js")]
    policy, store = tmp_path / "policy.yaml", tmp_path / "state.db"
    policy.write_text(POLICY)
    options = ["--policy", str(policy), "--store", str(store), "--server", "every", "--"]
    proxied = run_client(sys.executable, *PROXY, *options, *server)
    assert_redacted(run_client(*server), proxied)
    assert_counted_once(store)


def test_tasks_over_http(tmp_path: Path) -> None:
    policy, store = tmp_path / "policy.yaml", tmp_path / "state.db"
    policy.write_text(POLICY)
    with serve_everything() as address:
        direct = run_client(address)
        with serve_proxy(str(policy), address, "--store", str(store)) as proxied:
            seen = run_client(proxied)
    assert_redacted(direct, seen)
    assert_counted_once(store)
