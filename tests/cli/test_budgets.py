"""`policyguard budgets`: list and reset what processes share."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from policyguard import Guard
from policyguard.cli import main

POLICY = """
policyguard: 1
name: shop
budgets:
  spend: {cost: 2.00, per: user}
  pages: {calls: 3, per: [user, call.args.page]}
  rate: {calls: 50, within: 1h, per: global}
  at_once: {concurrent: 3, per: global}
"""

CHARGE = """
import sys
from policyguard import Guard
guard = Guard.load("policy.yaml", store="state/store.db")
session = guard.session(sys.argv[1], user="ann")
print(flush=True)
for line in sys.stdin:
    allowed = 0
    for number in range(int(line)):
        decision = session.check("count", {"page": f"{sys.argv[1]}{number}"})
        if decision:
            session.record(decision, result="x")
            allowed += 1
    print(allowed, flush=True)
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "policy.yaml").write_text(POLICY)
    with Guard.load(tmp_path / "policy.yaml", store=tmp_path / "state" / "store.db") as guard:
        session = guard.session("s", user="ann")
        for _ in range(3):
            session.record(session.check("read", {"page": "a"}), result="x", cost=0.5)
    return tmp_path


def budgets(folder: Path, *args: str) -> Result:
    store = str(folder / "state" / "store.db")
    return CliRunner().invoke(main, ["budgets", *args, "--store", store], catch_exceptions=False)


def listed(folder: Path) -> dict[str, float]:
    found = json.loads(budgets(folder, "list", "--format", "json").stdout)
    return {one["budget"].removeprefix("budgets/"): one["used"] for one in found}


def test_list(folder: Path) -> None:
    assert listed(folder) == {"spend": 1.5, "pages": 3.0, "rate": 3.0, "at_once": 0.0}
    policy = str(folder / "policy.yaml")
    lines = budgets(folder, "list", "--policy", policy).stdout.splitlines()
    assert [line.split()[0] for line in lines[1:]] == [
        "shop/budgets/pages",
        "shop/budgets/spend",
        "shop/budgets/rate",
        "shop/budgets/at_once",
    ]
    assert "user ann  " in lines[2]
    assert "1.5 of 2" in lines[2]
    wrong = budgets(folder, "list", "--policy", str(folder / "none.yaml"))
    assert wrong.exit_code == 2


def test_an_empty_store_has_none(tmp_path: Path) -> None:
    (tmp_path / "policy.yaml").write_text(POLICY)
    Guard.load(tmp_path / "policy.yaml", store=tmp_path / "state" / "store.db").close()
    assert budgets(tmp_path, "list").stdout == "no shared budget has been used\n"
    assert budgets(tmp_path / "missing", "list").exit_code == 2
    assert not (tmp_path / "missing").exists()
    assert budgets(tmp_path / "missing", "reset", "spend").exit_code == 2
    assert not (tmp_path / "missing").exists()


def test_list_writes_nothing(folder: Path) -> None:
    files = [folder / "state" / name for name in ("store.db", "store.db.purses")]
    before = [(file.read_bytes(), file.stat().st_mtime_ns) for file in files]
    assert budgets(folder, "list").exit_code == 0
    assert [(file.read_bytes(), file.stat().st_mtime_ns) for file in files] == before


def test_reset(folder: Path) -> None:
    done = budgets(folder, "reset", "pages", "--by", "bob")
    assert done.stdout.endswith(" is reset; 3 had been used\n")
    assert listed(folder) == {"spend": 1.5, "rate": 3.0, "at_once": 0.0}
    assert "reset by bob on " in budgets(folder, "list").stdout
    store = str(folder / "state" / "store.db")
    verified = CliRunner().invoke(main, ["journal", "verify", "--store", store])
    assert verified.exit_code == 0
    exported = CliRunner().invoke(main, ["journal", "anchors", "--store", store])
    assert '"note":"reset"' in exported.stdout
    with Guard.load(folder / "policy.yaml", store=folder / "state" / "store.db") as guard:
        session = guard.session("t", user="ann")
        decision = session.check("read", {"page": "a"})
        assert decision.allowed
        session.record(decision, result="x", cost=0.5)
        assert not session.check("read", {"page": "b"}).allowed  # of `spend`


@pytest.mark.parametrize(
    ("arguments", "help_"),
    [
        (["pagse"], "did you mean `pages`?"),
        (["x"], "see `policyguard budgets list`"),
        (["at_once"], "it is free again when they end"),
        (["spend", "--key", "anne"], "did you mean `ann`?"),
    ],
)
def test_wrong_arguments_say_what_to_do(folder: Path, arguments: list[str], help_: str) -> None:
    done = budgets(folder, "reset", *arguments)
    assert done.exit_code == 2
    assert help_ in done.stderr
    assert listed(folder)["spend"] == 1.5


def test_one_key_or_all(folder: Path) -> None:
    with Guard.load(folder / "policy.yaml", store=folder / "state" / "store.db") as guard:
        session = guard.session("t", user="bob")
        session.record(session.check("read", {"page": "a"}), result="x", cost=0.5)
    several = budgets(folder, "reset", "spend")
    assert (several.exit_code, "2 keys: pass --key KEY or --all-keys" in several.stderr) == (
        2,
        True,
    )
    assert budgets(folder, "reset", "shop/budgets/spend", "--key", "bob").exit_code == 0
    assert listed(folder)["spend"] == 1.5
    assert budgets(folder, "reset", "spend", "--all-keys").exit_code == 0
    assert "spend" not in listed(folder)


@pytest.mark.parametrize("killed", [False, True])
def test_processes_that_charge_see_it(folder: Path, killed: bool) -> None:
    """No charge before counts, and none after is lost."""
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", CHARGE, name],
            cwd=folder, env=environment, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        )
        for name in "ab"
    ]  # fmt: skip
    try:
        for process in processes:
            assert process.stdout is not None
            assert process.stdout.readline() == "\n"
        assert [_charge(process, 10) for process in processes] == [10, 10]
        assert listed(folder)["rate"] == 23.0
        if killed:
            processes[0].send_signal(signal.SIGKILL)
            processes[0].wait()
        done = budgets(folder, "reset", "rate")
        assert done.stdout == "budgets/rate is reset; 23 had been used\n"
        assert listed(folder)["rate"] == 0.0
        alive = processes[int(killed) :]
        assert _charge(alive[0], 30) + _charge(alive[-1], 30) == 50
        assert listed(folder)["rate"] == 50.0
    finally:
        for process in processes:
            process.kill()
            process.communicate()


def _charge(process: subprocess.Popen[str], times: int) -> int:
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(f"{times}\n")
    process.stdin.flush()
    return int(process.stdout.readline())
