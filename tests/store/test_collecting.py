"""`policyguard store gc` deletes what nothing counts any more, and nothing else."""

from __future__ import annotations

import json
import re
import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path

import pytest
from click.testing import CliRunner

from policyguard import Guard
from policyguard.cli import main
from policyguard.store.collecting import collect
from policyguard.store.opening import open_named_store
from tests.store.postgres_server import Server, postgres

__all__ = ["postgres"]

POLICY = """
policyguard: 1
name: tidy
budgets:
  short: {tools: [mail], calls: 3, per: project, within: 1s}
  long: {tools: [mail], calls: 9, per: project, within: 1h}
  calls: {calls: 800, per: global}
rules:
  ask: {tools: [deploy, release], effect: ask, approval: {from: [lead], remember: [tool]}}
"""
HOLDER = """
import os, signal, sys
from policyguard import Guard
session = Guard.load(sys.argv[1], store=sys.argv[2]).session("one", project="p")
for n in range(2):
    session.record(session.check("x", {"n": n}), result="y")
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.fixture(params=["file", "database"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "file":
        return str(tmp_path / "store.db")
    server: Server = request.getfixturevalue("postgres")
    return server.new_address()


@pytest.fixture
def policy(tmp_path: Path) -> str:
    path = tmp_path / "policy.yaml"
    path.write_text(POLICY)
    return str(path)


def _run(*arguments: object) -> str:
    result = CliRunner().invoke(main, [str(one) for one in arguments])
    assert result.exit_code == 0, result.output
    return result.output


def _counts(output: str) -> dict[str, int]:
    lines = [line.split() for line in output.splitlines()[1:]]
    return {name: int(count) for name, count, *_ in lines}


def test_what_counts_no_more_goes(store: str, policy: str) -> None:
    Path(policy).write_text(POLICY.replace("within: 1s", "within: 200ms"))
    with Guard.load(policy, store=store) as guard, guard.session("one", project="p") as session:
        session.record(session.check("mail", {"to": "ann"}), result="sent")
        for tool, expires in (("deploy", 0.2), ("release", 3600)):
            asked = session.check(tool, {"n": 1})
            session.approve(
                asked, by="ann", labels=["lead"], remember="tool", expires=expires, scope="project"
            )
    time.sleep(0.25)
    nothing = {"grants": 0, "budgets": 0, "leases": 0}
    due = {"grants": 1, "budgets": 1, "leases": 0}
    assert _counts(_run("store", "gc", "--dry-run", "--store", store)) == due
    output = _run("store", "gc", "--store", store)
    assert _counts(output) == due
    for line in ("1 expired, the first ", "1 whose windows are over, the first "):
        assert re.search(rf"{line}\d+s ago\n", output), output
    assert _counts(_run("store", "gc", "--store", store)) == nothing
    opened = open_named_store(store, caps=None)
    assert len(opened.grants.list()) == 1
    assert sorted(key.budget.partition(":")[0] for key in opened.quotas.keys()) == [  # noqa: SIM118
        "tidy/budgets/calls",
        "tidy/budgets/long",
    ]
    opened.close()


def test_what_the_dead_have_used_stays_used(store: str, policy: str) -> None:
    subprocess.run([sys.executable, "-c", HOLDER, policy, store], check=False)
    if store.startswith("postgresql"):
        opened = open_named_store(store, caps=None)
        opened._database.execute("UPDATE leases SET expires = clock_timestamp()")  # type: ignore[attr-defined]  # of databases
        opened.close()
    assert _counts(_run("store", "gc", "--dry-run", "--store", store))["leases"] == 1
    assert _counts(_run("store", "gc", "--store", store))["leases"] == 1
    assert _counts(_run("store", "gc", "--store", store))["leases"] == 0
    (calls,) = json.loads(_run("budgets", "list", "--store", store, "--format", "json"))
    assert 2 <= calls["used"] <= 20  # in PostgreSQL a lease that has run out counts in full


def test_what_a_living_guard_has_is_left_alone(store: str, policy: str) -> None:
    with Guard.load(policy, store=store) as guard, guard.session("one", project="p") as session:
        session.record(session.check("mail", {"to": "ann"}), result="sent")
        time.sleep(1.1)
        assert _counts(_run("store", "gc", "--store", store))["leases"] == 0
        assert [bool(session.check("mail", {"n": n})) for n in range(4)] == [True] * 3 + [False]


def test_nothing_changes_between_the_last_look_and_the_deletion(
    tmp_path: Path, policy: str
) -> None:
    store = tmp_path / "store.db"
    with Guard.load(policy, store=store) as guard, guard.session("one", project="p") as session:
        session.record(session.check("mail", {"to": "ann"}), result="sent")
    opened = open_named_store(str(store), caps=None)
    could_write: set[bool] = set()

    def interfere(statement: str) -> None:
        if statement.startswith("DELETE FROM purses"):
            with closing(sqlite3.connect(store, timeout=0)) as other:
                try:
                    other.execute("BEGIN IMMEDIATE")
                    could_write.add(True)
                except sqlite3.OperationalError:
                    could_write.add(False)

    opened._database._connect().set_trace_callback(interfere)  # type: ignore[attr-defined]  # of files
    collect(opened, lambda key: pytest.fail(str(key)), time.time_ns() + 60 * 10**9)
    opened.close()
    assert could_write == {False}


def test_no_store_is_made(tmp_path: Path) -> None:
    result = CliRunner().invoke(main, ["store", "gc", "--store", str(tmp_path / "none.db")])
    assert result.exit_code == 2
    assert not (tmp_path / "none.db").exists()
