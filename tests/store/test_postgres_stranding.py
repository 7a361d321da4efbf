"""What guards that are killed strand of a shared budget, before their term ends and after it."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Self

import pytest

from tests.store.postgres_server import Server, postgres

__all__ = ["postgres"]

pytest.importorskip("psycopg", reason="psycopg is not installed")
import psycopg

LIMIT, TERM = 20_000, 30.0
CALLS_PER_SECOND = 2_000
"""Of all guards, until some are killed; the others then make as many as they can."""
POLICY = f"""
policyguard: 1
name: stranding
budgets: {{all: {{tools: [step], calls: {LIMIT}, per: global}}}}
"""
GUARD = """
import sys, time
from pathlib import Path
from policyguard import Guard
from policyguard.store.postgres.store import PostgresStore
address, folder, name = sys.argv[1], Path(sys.argv[2]), sys.argv[3]
pause = float(sys.argv[5])
store = PostgresStore(address, caps=None, term=float(sys.argv[4]))
guard = Guard.load(folder / "policy.yaml", store=store, journal=folder / name)
session = guard.session(name)
output = (folder / f"{name}.acknowledged").open("wb", buffering=0)
(folder / f"{name}.ready").touch()
while not (folder / "begin").exists():
    time.sleep(0.01)
while not (folder / "end").exists():
    if (folder / f"{name}.sleep").exists():
        time.sleep(0.05)
        continue
    decision = session.check("step", {})
    if decision:
        output.write(b".")
        session.record(decision, result="")
        time.sleep(0 if (folder / "hurry").exists() else pause)
    else:
        time.sleep(0.2)
guard.close()
store.close()
"""


def wait_for(reached: Callable[[], bool], seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while not reached():
        assert time.monotonic() < deadline
        time.sleep(0.02)


class Fleet:
    """Guards that draw from one budget, each in a process of its own.

    While the file `NAME.sleep` exists, a guard keeps what it has leased and makes no call.
    """

    def __init__(self, address: str, folder: Path, count: int) -> None:
        self.folder, self.address = folder, address
        (folder / "policy.yaml").write_text(POLICY)
        self.names = [f"g{number}" for number in range(count)]
        more = [str(TERM), str(count / CALLS_PER_SECOND)]
        self.processes = {
            name: subprocess.Popen([sys.executable, "-c", GUARD, address, str(folder), name, *more])
            for name in self.names
        }
        wait_for(lambda: all((folder / f"{name}.ready").exists() for name in self.names), 120)
        (folder / "begin").touch()

    def acknowledged(self, name: str) -> int:
        return (self.folder / f"{name}.acknowledged").stat().st_size

    def lines(self, name: str) -> int:
        (journal,) = (self.folder / name).glob("*.jsonl")
        return journal.read_bytes().count(b'{"event":"admitted"')

    def drawn(self) -> int:
        return sum(map(self.acknowledged, self.names))

    def leases(self) -> list[int]:
        """Return what each lease that the database has is for, in calls."""
        with psycopg.connect(self.address) as connection:
            rows = connection.execute("SELECT amount FROM leases").fetchall()
        return [int(amount) // 10**9 for (amount,) in rows]

    def wait_until_none_draws(self, seconds: float) -> None:
        deadline = time.monotonic() + seconds
        before, since = self.drawn(), time.monotonic()
        while time.monotonic() - since < 1.0:
            assert time.monotonic() < deadline, "the others are still drawing"
            time.sleep(0.1)
            if self.drawn() != before:
                before, since = self.drawn(), time.monotonic()

    def end(self) -> None:
        (self.folder / "end").touch()
        for process in self.processes.values():
            process.wait(20)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for process in self.processes.values():
            process.kill()


@pytest.mark.slow
@pytest.mark.parametrize("count", [4, 16])
def test_guards_that_are_killed_strand_five_percent_at_most(
    postgres: Server, tmp_path: Path, count: int
) -> None:
    with Fleet(postgres.new_address(), tmp_path, count) as fleet:
        wait_for(lambda: fleet.drawn() > LIMIT * 0.65, 60)
        sleeping, busy = fleet.names[: count // 2], fleet.names[count // 2 :]
        for name in sleeping:
            (tmp_path / f"{name}.sleep").touch()
        wait_for(lambda: fleet.drawn() > LIMIT * 0.7, 60)
        killed = [*sleeping[::2], *busy[::2]]
        held = fleet.leases()
        at_kill = fleet.drawn()
        for name in killed:
            fleet.processes[name].kill()
        killed_at = time.monotonic()
        for name in sleeping[1::2]:
            (tmp_path / f"{name}.sleep").unlink()
        (tmp_path / "hurry").touch()
        fleet.wait_until_none_draws(0.7 * TERM)
        before_the_end = fleet.drawn()
        left_by_dead = fleet.leases()
        measured_after = time.monotonic() - killed_at
        time.sleep(max(0.0, 1.1 * TERM - measured_after))
        fleet.wait_until_none_draws(TERM)
        fleet.end()
    drawn = sum(map(fleet.lines, fleet.names))
    without_lines = sum(
        max(0, fleet.acknowledged(name) - fleet.lines(name)) for name in fleet.names
    )
    print(  # noqa: T201
        f"{count} guards, {len(killed)} killed at {at_kill} of {LIMIT}, leased then "
        f"{sum(held)} by {len(held)}; {measured_after:.1f} s later: stranded "
        f"{LIMIT - before_the_end}, in leases {sum(left_by_dead)} by {len(left_by_dead)}; after "
        f"the term: never used {LIMIT - drawn}; acknowledged without a line: {without_lines}, "
        f"lines of calls that were not acknowledged: {drawn - fleet.drawn()}"
    )
    assert 0.7 * LIMIT < at_kill < 0.9 * LIMIT
    assert left_by_dead
    assert without_lines == 0
    assert LIMIT - before_the_end <= LIMIT / 20
    assert 0.95 * LIMIT <= drawn <= LIMIT
    assert drawn - before_the_end <= len(killed)
