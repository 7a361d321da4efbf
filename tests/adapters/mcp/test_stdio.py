"""The proxy on stdio: bytes that pass, limits, and how it ends."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.adapters.mcp.raw_client import RawClient, is_gone, wait_for

OPEN = "policyguard: 1\nname: open\n"


@pytest.fixture
def policy(tmp_path: Path) -> str:
    file = tmp_path / "policy.yaml"
    file.write_text(OPEN)
    return str(file)


Connect = Callable[..., RawClient]


@pytest.fixture
def connect(tmp_path: Path, policy: str) -> Connect:
    """Starts a proxy with a client."""
    return lambda *options, mode="": RawClient(tmp_path, policy, *options, mode=mode)


@pytest.fixture(scope="module")
def open_client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RawClient]:
    """A client for tests that leave no request without its response."""
    folder = tmp_path_factory.mktemp("shared")
    file = folder / "policy.yaml"
    file.write_text(OPEN)
    with RawClient(folder, str(file)) as client:
        yield client


@pytest.mark.parametrize(
    "line",
    [
        b'{"jsonrpc":"2.0","id":1,"method":"x/new","params":{"n":12345678901234567890123},"more":[1]}',
        b'{ "id" : "a" , "jsonrpc" : "2.0", "method": "ping", "params": {"f": 1.0, "e": 1e400} }',
        b'{"jsonrpc":"2.0","id":2,"method":"ping","params":{"text":"\\ud800"}}',
        b'{"jsonrpc":"2.0","method":"notifications/other","params":{"x":null}}',
        b'{"jsonrpc":"2.0","id":3,"method":"tools/call","params":{"name":"t","arguments":{"f":1.50},'
        b'"_meta":{"progressToken":7,"own":{}},"x":1},"y":2}',
        b'{"jsonrpc":"2.0","id":"none","result":{"to":"no request"},"z":1}',
    ],
)
def test_lines_reach_the_server_as_they_are(open_client: RawClient, line: bytes) -> None:
    """No byte of a message changes that the policy does not change."""
    open_client.write(line)
    message = json.loads(line)
    if "id" in message and "method" in message:
        assert open_client.read()["id"] == message["id"]
    id_ = open_client.send("ping")
    assert open_client.read()["id"] == id_
    assert line in open_client.log.read_bytes().splitlines()


@pytest.mark.parametrize(
    "line",
    [
        '{"jsonrpc":"2.0","id":$ID,"result":{"content":[],"n":1.50,"big":123456789012345678901},"x":1}',
        '{ "result": {"content": [{"type":"odd","z":null}]}, "id": $ID, "jsonrpc":"2.0" }',
        '{"jsonrpc":"2.0","id":$ID,"error":{"code":-32055,"message":"no","data":{"k":1},"more":2}}',
        '{"jsonrpc":"2.0","id":$ID,"result":{"content":[{"type":"text","text":"\\ud800"}]}}',
    ],
)
def test_results_reach_the_client_as_they_are(open_client: RawClient, line: str) -> None:
    id_ = open_client.send("tools/call", {"name": "write", "arguments": {"text": line}})
    assert open_client.read_line() == line.replace("$ID", str(id_)).encode()


def test_requests_of_the_server_and_their_answers_pass(connect: Connect) -> None:
    request = '{"jsonrpc":"2.0","id":"s1","method":"sampling/createMessage","params":{"q":1}}'
    with connect() as client:
        client.send("tools/call", {"name": "write", "arguments": {"text": request}})
        assert client.read_line() == request.encode()
        client.write(b'{"jsonrpc":"2.0","id":"s1","result":{"a":2}}')
        client.send("ping")
        client.read()
        assert client.received()[1] == {"jsonrpc": "2.0", "id": "s1", "result": {"a": 2}}


def test_a_batch_is_passed_one_by_one(open_client: RawClient) -> None:
    open_client.write(
        b'[{"jsonrpc":"2.0","id":1,"method":"ping"},{"jsonrpc":"2.0","id":2,"method":"ping"}]'
    )
    assert {open_client.read()["id"], open_client.read()["id"]} == {1, 2}


def test_a_response_to_no_request_is_dropped(connect: Connect) -> None:
    """A client might take `"1"` for 1, and so get a result that no rule has seen."""
    with connect() as client:
        client.call("twice")
        client.send(
            "tools/call",
            {"name": "write", "arguments": {"text": '{"jsonrpc":"2.0","id":"3","result":{}}'}},
        )
        id_ = client.send("ping")
        assert client.read()["id"] == id_


def test_what_is_no_message(connect: Connect) -> None:
    with connect() as client:
        client.write(b"no json")
        assert client.read()["error"]["code"] == -32700
        client.send("tools/call", {"name": "write", "arguments": {"text": "a stray line"}})
        client.write(b'{"jsonrpc":"2.0","id":"a","method":"ping"}')
        assert client.read()["id"] == "a"


def test_an_id_in_use_is_refused(connect: Connect) -> None:
    with connect() as client:
        line = b'{"jsonrpc":"2.0","id":9,"method":"tools/call","params":{"name":"never"}}'
        client.write(line)
        client.write(line)
        assert client.read()["error"]["code"] == -32600


def test_messages_that_are_too_long(connect: Connect) -> None:
    with connect("--max-message", "10000") as client:
        client.call("x")
        id_ = client.send("tools/call", {"name": "x", "arguments": {"text": "y" * 20000}})
        refused = client.read()
        assert refused["id"] == id_
        assert "bytes" in refused["error"]["message"]
        refused = client.call("large", size=20000)
        assert "at most 10000" in refused["error"]["message"]
        assert client.call("large", size=5000)["result"]["content"][0]["text"] == "x" * 5000
        assert len(client.received()) == 3


def test_calls_that_run_and_wait(connect: Connect) -> None:
    """Of four calls two run, one waits, and one is refused."""
    with connect("--max-calls", "2", "--max-waiting", "1") as client:
        client.call("x")
        ids = [client.send("tools/call", {"name": "never"}) for _ in range(4)]
        refused = client.read()
        assert refused["id"] == ids[3]
        assert refused["result"]["isError"] is True
        client.notify("notifications/cancelled", {"requestId": ids[0]})
        assert client.calls(4) == [1, *ids[:3]]


def test_a_waiting_call_can_be_cancelled(connect: Connect) -> None:
    with connect("--max-calls", "1") as client:
        client.call("x")
        first, second = (client.send("tools/call", {"name": "never"}) for _ in range(2))
        client.notify("notifications/cancelled", {"requestId": second})
        client.notify("notifications/cancelled", {"requestId": first})
        assert client.call("x")["result"]
        names = [
            message["params"].get("requestId")
            for message in client.received()
            if "id" not in message
        ]
        assert names == [first]


def test_a_call_whose_time_is_over(tmp_path: Path) -> None:
    file = tmp_path / "policy.yaml"
    file.write_text(f"{OPEN}limits: {{tools: {{never: {{timeout: 200ms}}}}}}\n")
    with RawClient(tmp_path, str(file)) as client:
        result = client.call("never")["result"]
        assert "longer than 0.2 s" in result["content"][0]["text"]
        assert client.call("x")["result"]
        notes = [message for message in client.received() if "id" not in message]
        assert [note["params"]["requestId"] for note in notes] == [1]


def memory_of(pid: int) -> int:
    """Return how many MiB a process has."""
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.partition("VmRSS:")[2].split()[0]) // 1024


def write_until_blocked(pipe: int) -> None:
    """Send calls until nobody has read for a while."""
    os.set_blocking(pipe, False)
    line = b'{"jsonrpc":"2.0","id":"%d","method":"tools/call","params":{"name":"never"}}\n'
    for number in range(200_000):
        blocked_since = time.monotonic()
        while True:
            try:
                os.write(pipe, line % number)
                break
            except BlockingIOError:
                if time.monotonic() - blocked_since > 1:
                    return
                time.sleep(0.02)


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs /proc")
def test_a_client_that_reads_nothing(connect: Connect) -> None:
    """Neither the server's messages nor refusals pile up for it."""
    with connect("--max-calls", "1", "--max-waiting", "0") as client:
        client.call("x")
        before = memory_of(client.process.pid)
        client.send("tools/call", {"name": "flood", "arguments": {"messages": 4000}})
        assert client.process.stdin is not None
        write_until_blocked(client.process.stdin.fileno())
        assert memory_of(client.process.pid) - before < 60


def test_a_server_that_ends(connect: Connect) -> None:
    """What waits gets an error that says so, and the proxy ends with the server's code."""
    with connect() as client:
        waiting = client.send("tools/call", {"name": "never"})
        ending = client.send("tools/call", {"name": "end", "arguments": {"code": 3}})
        errors = [client.read(), client.read()]
        assert [error["id"] for error in errors] == [waiting, ending]
        assert all("`raw` has ended (exit code 3)" in error["error"]["message"] for error in errors)
        assert client.process.wait(20) == 3


def test_a_server_that_is_killed(connect: Connect) -> None:
    with connect() as client:
        assert "has ended" in client.call("kill")["error"]["message"]
        assert client.process.wait(20) == 128 + signal.SIGKILL


def test_a_server_that_is_killed_and_whose_children_live_on(connect: Connect) -> None:
    with connect(mode="forks") as client:
        child = int(wait_for(Path(f"{client.log}.child")))
        assert "has ended" in client.call("kill")["error"]["message"]
        client.process.wait(20)
        assert is_gone(child)


@pytest.mark.parametrize("mode", ["", pytest.param("deaf", marks=pytest.mark.slow)])
def test_a_client_that_goes(connect: Connect, mode: str) -> None:
    """The server ends with the client, even if it ignores that."""
    with connect(mode=mode) as client:
        client.call("x")
        pid = client.server_pid()
        assert client.process.stdin is not None
        client.process.stdin.close()
        assert client.process.wait(20) == 0
        assert is_gone(pid)


@pytest.mark.parametrize("mode", ["deaf", "forks"])
def test_a_proxy_that_is_killed_leaves_no_orphan(connect: Connect, mode: str) -> None:
    with connect(mode=mode) as client:
        client.call("x")
        pids = [client.server_pid()]
        if mode == "forks":
            pids.append(int(wait_for(Path(f"{client.log}.child"))))
        client.process.kill()
        assert all(is_gone(pid) for pid in pids)


def test_a_proxy_that_is_told_to_end(connect: Connect) -> None:
    with connect() as client:
        client.call("x")
        pid = client.server_pid()
        os.kill(client.process.pid, signal.SIGTERM)
        assert client.process.wait(20) == 0
        assert is_gone(pid)


def test_a_command_that_is_not_there(tmp_path: Path, policy: str) -> None:
    command = [sys.executable, "-m", "policyguard", "mcp", "--policy", policy, "--", "/no/such"]
    ended = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.PIPE)
    assert ended.returncode == 2
    assert "/no/such" in ended.stderr
    assert ended.stdout == ""


@pytest.mark.parametrize("name", ["input", "output"])
def test_a_file_is_no_client(tmp_path: Path, policy: str, name: str) -> None:
    file = tmp_path / "file"
    file.write_text("{}\n")
    command = [sys.executable, "-m", "policyguard", "mcp", "--policy", policy, "--", "cat"]
    with file.open("r+") as opened:
        done = subprocess.run(
            command,
            stdin=opened if name == "input" else subprocess.DEVNULL,
            stdout=opened if name == "output" else subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    assert done.returncode == 2
    assert f"standard {name} is a file" in done.stderr
    assert "Traceback" not in done.stderr


def test_lines_that_are_no_message_do_not_fill_the_log(connect: Connect) -> None:
    answer = '{"jsonrpc": "2.0", "id": $ID, "result": {"content": []}}'
    with connect() as client:
        client.call("write", text="noise\n" * 150 + '{"id": 77, "result": {}}\n' * 150 + answer)
        assert client.process.stdin is not None
        client.process.stdin.close()
        client.process.wait(20)
        assert client.process.stderr is not None
        log = client.process.stderr.read().decode()
    assert log.count("no message on a line of its own") == 5  # three, the 10th and the 100th
    assert log.count("to no request") == 5
    assert "(100 times so far)" in log


HIDDEN = '{"jsonrpc":"2.0","method":"x","params":{"a":\r%s\r}}'


def test_no_line_is_two_for_readers_that_end_lines_at_a_carriage_return(connect: Connect) -> None:
    """What is inside would be a message of its own, which the proxy has not judged."""
    call = '{"jsonrpc":"2.0","id":8,"method":"tools/call","params":{"name":"x"}}'
    result = '{"jsonrpc":"2.0","id":$ID,"result":{"content":[]}}'
    with connect() as client:
        client.write((HIDDEN % call).encode())
        client.write(b'{"jsonrpc":"2.0","id":"a","method":"ping"}\r')
        assert client.read()["id"] == "a"
        assert b"\r" not in client.log.read_bytes().splitlines(keepends=False)[0]
        assert client.received()[0]["params"]["a"] == json.loads(call)
        client.send("tools/call", {"name": "write", "arguments": {"text": HIDDEN % result}})
        line = client.read_line()
        assert b"\r" not in line
        assert json.loads(line)["method"] == "x"


def test_a_response_that_cannot_be_read_is_an_error(open_client: RawClient) -> None:
    deep = '{"jsonrpc":"2.0","id":$ID,"result":' + "[" * 100_000 + "]" * 100_000 + "}"
    for text in (deep, '{"jsonrpc":"2.0","id":$ID,"result":}'):
        assert "cannot be read" in open_client.call("write", text=text)["error"]["message"]


def test_calls_that_were_cancelled_need_no_response(connect: Connect) -> None:
    """Servers should not answer them, so they may not use up the room for requests."""
    with connect("--max-calls", "2", "--max-waiting", "0") as client:
        for _ in range(1100):
            id_ = client.send("tools/call", {"name": "never"})
            client.notify("notifications/cancelled", {"requestId": id_})
        assert client.call("x")["result"]["content"][0]["text"] == "done"
