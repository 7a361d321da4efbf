"""Checks through the service's socket, beside a web server that only echoes.

    python -m benchmarks.service [--quick] [--clients N]

Clients are processes with one connection each; they send raw requests one after the other and
never pause, so the service is as busy as it can be: on few cores their own work is part of each
time. A client has a session, and reports each result; the figures are of checks. The echo is
uvicorn with an application that reads the request and sends a fixed answer.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks.measure import Report, number, table

CHECKS = 10_000
POLICY = """\
policyguard: 1
name: served
extends: [core]
budgets:
  calls: {calls: %d, per: global}
"""
ECHO = """
import sys, uvicorn
ANSWER = b'{"call": "c1", "effect": "allow", "allowed": true, "message": ""}'
HEADERS = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(ANSWER))]
async def app(scope, receive, send):
    await receive()
    await send({"type": "http.response.start", "status": 200, "headers": HEADERS})
    await send({"type": "http.response.body", "body": ANSWER})
uvicorn.run(app, uds=sys.argv[1], http="httptools", log_level="warning", access_log=False,
            lifespan="off", interface="asgi3", proxy_headers=False, date_header=False)
"""


class Client:
    """One keep-alive connection."""

    def __init__(self, path: str) -> None:
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._socket.connect(path)

    def post(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        """Send a request, and return its answer."""
        data = json.dumps(body).encode()
        head = f"POST {path} HTTP/1.1\r\nhost: x\r\ncontent-length: {len(data)}\r\n\r\n"
        self._socket.sendall(head.encode() + data)
        received = b""
        while (end := received.find(b"\r\n\r\n")) < 0:
            received += self._receive()
        length = int(received.lower().partition(b"content-length: ")[2].split(b"\r\n")[0])
        while len(received) < end + 4 + length:
            received += self._receive()
        answer: dict[str, Any] = json.loads(received[end + 4 :])
        return answer

    def _receive(self) -> bytes:
        data = self._socket.recv(65536)
        if not data:
            raise ConnectionError("the service has closed the connection")
        return data


def run_client(path: str, name: str, checks: int) -> tuple[list[float], int]:
    """Return how long each check took, in ms, and how many were allowed."""
    client, times, allowed = Client(path), [], 0
    client.post("/v1/sessions", {"session": name})
    for index in range(checks):
        request = {
            "session": name,
            "tool": "read_file",
            "args": {"path": f"src/{index}.py"},
            "call": f"{name}-{index}",
        }
        begin = time.perf_counter()
        answer = client.post("/v1/check", request)
        times.append((time.perf_counter() - begin) * 1e3)
        if answer["allowed"]:
            allowed += 1
            result = {"session": name, "call": request["call"], "result": f"line {index}"}
            client.post("/v1/record", result)
    return times, allowed


@contextmanager
def serving(command: list[str], path: Path) -> Iterator[int]:
    """Run a server until it listens; yield its process id."""
    process = subprocess.Popen(command)
    try:
        deadline = time.monotonic() + 30
        while not path.exists() and time.monotonic() < deadline:
            time.sleep(0.05)
        time.sleep(0.3)
        yield process.pid
    finally:
        process.terminate()
        process.wait(20)


def processor_seconds(pid: int) -> float:
    """Return the processor time that a process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def measure(command: list[str], path: Path, clients: int, checks: int) -> dict[str, float]:
    """Return percentiles of checks in ms, and what a request takes of the server, in µs."""
    with serving(command, path) as pid, multiprocessing.Pool(clients) as pool:
        each = checks // clients
        before = processor_seconds(pid)
        work = [(str(path), f"client-{number}", each) for number in range(clients)]
        results = pool.starmap(run_client, work, chunksize=1)
        used = processor_seconds(pid) - before
    times = sorted(one for result, _ in results for one in result)
    allowed = sum(count for _, count in results)
    requests = len(times) + allowed
    return {
        "p50": statistics.median(times),
        "p99": times[int(len(times) * 0.99)],
        "max": times[-1],
        "checks": len(times),
        "allowed": allowed,
        "server": used / requests * 1e6,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--clients", type=int, default=16)
    options = parser.parse_args()
    checks = CHECKS // 5 if options.quick else CHECKS
    figures: dict[str, dict[str, float]] = {}
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        echo = [sys.executable, "-c", ECHO, str(folder / "echo.sock")]
        figures["echo"] = measure(echo, folder / "echo.sock", options.clients, checks)
        for name, budget in (
            ("ample budget", 2 * checks),
            ("budget for 9 of 10", checks * 9 // 10),
        ):
            place = folder / name
            place.mkdir()
            (place / "policy.yaml").write_text(POLICY % budget)
            service = [sys.executable, "-m", "policyguard", "serve"]
            service += ["--policy", str(place / "policy.yaml")]
            service += ["--store", str(place / "state" / "store.db")]
            service += ["--socket", str(place / "run.sock")]
            figures[name] = one = measure(service, place / "run.sock", options.clients, checks)
            one["expected"] = min(budget, one["checks"])
    rows = [
        [name, *(number(one[key]) for key in ("p50", "p99", "max", "server"))]
        for name, one in figures.items()
    ]
    report = Report("service", "Service", figures)
    report.add(table(["", "p50 ms", "p99 ms", "max ms", "processor time a request, µs"], rows))
    served = list(figures.values())[1:]
    counts = ", ".join(f"{one['allowed']:.0f} of {one['checks']:.0f}" for one in served)
    report.add(f"{options.clients} clients. Checks that were allowed: {counts}.")
    report.write()
    if any(one["allowed"] != one["expected"] for one in served):
        sys.exit("a budget was not exact")


if __name__ == "__main__":
    main()
