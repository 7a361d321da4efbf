"""policyguard itself, in its own process like the peers."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from benchmarks.peers.protocol import Run, serve, time_each
from benchmarks.rules import policy
from benchmarks.workload import Call
from policyguard import Guard
from policyguard.model.decision import Decision


def run(base: str, count: int) -> Run:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "policy.yaml"
        file.write_text(policy(count, core=base == "core"), "utf-8")
        session = Guard.load(file).session("s")

    def check(call: Call) -> Decision | None:
        decision = session.check(call.tool, call.args)
        return decision if decision.allowed else None

    def record(call: Call, decision: Decision) -> None:
        if call.error is None:
            session.record(decision, result=call.result)
        else:
            session.record(decision, error=call.error)

    return time_each(check, record)


if __name__ == "__main__":
    serve("policyguard-engine", run(sys.argv[1], int(sys.argv[2])))
