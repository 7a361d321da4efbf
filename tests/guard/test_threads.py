"""A hard limit is hard, whoever asks at the same time."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from policyguard import Guard

BUDGET = """
policyguard: 1
name: budget
budgets:
  calls: {calls: 500, per: %s}
"""


@pytest.mark.parametrize("scope", ["session", "project", "global", "turn"])
def test_sixteen_threads_share_one_budget_exactly(tmp_path: Path, scope: str) -> None:
    policy = tmp_path / "policy.yaml"
    policy.write_text(BUDGET % scope)
    session = Guard.load(policy).session("one")
    start = threading.Barrier(16)
    admitted: list[int] = []

    def work(number: int) -> None:
        start.wait()
        count = 0
        for place in range(100):
            decision = session.check("tool", {"thread": number, "place": place})
            if decision.allowed:
                count += 1
                if place % 2:
                    session.record(decision, result="ok")
        admitted.append(count)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sum(admitted) == 500
