"""aura-guard: check a call, record its result."""

from __future__ import annotations

from aura_guard import AgentGuard

from benchmarks.peers.protocol import Run, serve, time_each
from benchmarks.workload import Call


def run() -> Run:
    guard = AgentGuard(secret_key=b"a key of the benchmark's own")

    def check(call: Call) -> bool:
        return guard.check_tool(call.tool, args=call.args).action.value == "allow"

    def record(call: Call, _: object) -> None:
        if call.error is None:
            guard.record_result(ok=True, payload=call.result)
        else:  # its documentation asks for a coarse code here, not for a message
            guard.record_result(ok=False, error_code=call.error.partition(" ")[0])

    return time_each(check, record)


if __name__ == "__main__":
    serve("aura-guard", run())
