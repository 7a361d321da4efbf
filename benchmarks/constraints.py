"""What a check costs with no learned constraint, a thousand, and a million.

    python -m benchmarks.constraints [MANY]

One guard each, called in turn, so that the machine's moods hit all alike; medians in µs.
"""

from __future__ import annotations

import statistics
import sys
import time

from policyguard import Guard
from policyguard.model.constraint import Constraint

ROUNDS = 4000


def _guard(many: int) -> Guard:
    guard = Guard.load("core")
    memory = guard.world.memory
    for number in range(many):
        memory.put(
            Constraint(
                id=f"k{number}",
                kind="banned_strategy",
                learn="",
                scope="session:s",
                key=f"call:{number:032x}",
                signature="wrong",
                tool="tool",
                count=2,
            )
        )
    return guard


def main() -> None:
    most = int(sys.argv[1]) if len(sys.argv) > 1 else 1_000_000
    sizes = (0, 1, 1_000, most)
    sessions = [_guard(size).session("s") for size in sizes]
    taken: list[list[int]] = [[] for _ in sizes]
    for number in range(ROUNDS):
        for session, times in zip(sessions, taken, strict=True):
            begun = time.perf_counter_ns()
            decision = session.check("search", {"query": f"q{number}", "limit": 10})
            times.append(time.perf_counter_ns() - begun)
            session.record(decision, result=str(number))
    print("constraints  check, median µs")
    for size, times in zip(sizes, taken, strict=True):
        print(f"{size:>11,}  {statistics.median(times) / 1000:.2f}")


if __name__ == "__main__":
    main()
