"""Many processes over one budget, while processes, server and network fail at random.

`POLICYGUARD_SEED` chooses the failures, which the test prints.
"""

from __future__ import annotations

import os
import random
import signal
import time
from pathlib import Path

import pytest

from tests.store.dropping_proxy import DroppingProxy
from tests.store.postgres_server import Server, postgres

__all__ = ["postgres"]

pytest.importorskip("psycopg", reason="psycopg is not installed")

from tests.store.test_postgres import TERM, drain, end_holders, start_holder, used

LIMIT, SECONDS = 20_000, 24
CALLS_PER_SECOND = 1_600
"""Of all processes: few enough that each failure comes while there is something left to draw."""


@pytest.mark.slow
@pytest.mark.parametrize("processes", [4, 16])
def test_a_budget_is_never_exceeded_through_failures_at_random(
    postgres: Server, tmp_path: Path, processes: int
) -> None:
    seed = int(os.environ.get("POLICYGUARD_SEED", "1"))
    chance = random.Random(seed)  # noqa: S311 - no secret
    address = postgres.new_address()
    proxy = DroppingProxy(postgres.port)
    cut = address.replace(f":{postgres.port}/", f":{proxy.port}/")
    logs = [tmp_path / f"{number}.log" for number in range(processes)]
    pause = processes / CALLS_PER_SECOND
    ends = time.monotonic() + SECONDS
    holders = [
        start_holder(cut if number % 2 else address, log, LIMIT, pause)
        for number, log in enumerate(logs)
    ]
    chosen = chance.sample(range(processes), 4)
    killed, stopped = chosen[: max(1, processes // 8)], chosen[2:]
    failures = ["kill", "stop", "restart", "drop"]
    chance.shuffle(failures)
    while used(address, LIMIT) < LIMIT / 20:
        time.sleep(0.05)
    used_at = {}
    for failure in failures:
        time.sleep(chance.uniform(0.1, 0.5))
        used_at[failure] = used(address, LIMIT)
        if failure == "kill":
            for number in killed:
                holders[number].kill()
        elif failure == "stop":
            for number in stopped:
                os.kill(holders[number].pid, signal.SIGSTOP)
        elif failure == "restart":
            postgres.stop()
            time.sleep(0.3)
            postgres.start()
        else:
            proxy.is_dropping = True
            time.sleep(2 * TERM)
            proxy.is_dropping = False
    time.sleep(2 * TERM)
    for number in stopped:
        os.kill(holders[number].pid, signal.SIGCONT)
    time.sleep(max(0, ends - time.monotonic()))
    end_holders(holders)
    proxy.close()
    drawn = sum(log.stat().st_size for log in logs) + drain(address, LIMIT)
    print(  # noqa: T201
        f"seed {seed}, {processes} processes: {drawn} of {LIMIT}; used at {used_at}"
    )
    assert max(used_at.values()) < 0.9 * LIMIT, "a failure came when nothing was left to draw"
    assert 0.95 * LIMIT <= drawn <= LIMIT
    assert drain(address, LIMIT) == 0
