"""A store with damaged records: an error with its path, never a crash."""

from __future__ import annotations

import contextlib
import random
import sqlite3
from pathlib import Path

import pytest
from click.testing import CliRunner

from policyguard import Guard
from policyguard.cli import main
from policyguard.journal.errors import JournalError
from policyguard.store.errors import StoreError

POLICY = """
policyguard: 1
name: damaged
signatures: [{id: wrong, pattern: wrong, blame: agent}]
budgets: {b: {calls: 100, per: project}}
learn: {corroborate: 2, scope: project}
"""


def _create_store(folder: Path) -> Path:
    """A store with a constraint, evidence and a shared budget, all in its one file."""
    (folder / "policy.yaml").write_text(POLICY)
    guard = Guard.load(folder / "policy.yaml", store=folder / "state" / "store.db")
    session = guard.session("s", project="p")
    for target in ("x", "x", "y"):
        session.record(session.check("build", {"target": target}), error="wrong")
    session.end()
    path = folder / "state" / "store.db"
    _run(path, "PRAGMA wal_checkpoint(TRUNCATE)")
    return path


def _run(path: Path, statement: str, *values: object) -> None:
    connection = sqlite3.connect(path)
    with connection:
        connection.execute(statement, values)
    connection.close()


def _use_store(folder: Path) -> None:
    guard = Guard.load(folder / "policy.yaml", store=folder / "state" / "store.db")
    session = guard.session("t", project="p")
    for target in ("x", "z"):
        decision = session.check("build", {"target": target})
        if decision.allowed:
            session.record(decision, error="wrong")
    session.end()


@pytest.mark.parametrize("payload", [b"", b"\xff", b"\x80", b"\xa1\xff", "text", 5, b"\x91" * 5000])
@pytest.mark.parametrize("table", ["constraints", "evidence"])
def test_damaged_constraints_and_evidence(tmp_path: Path, table: str, payload: object) -> None:
    path = _create_store(tmp_path)
    _run(path, f"UPDATE {table} SET payload = ?", payload)  # noqa: S608 - one of two names
    with pytest.raises(
        StoreError, match=r"store\.db: is damaged: .* cannot be read .*move it away"
    ):
        _use_store(tmp_path)
    for command in ("list", "export"):
        result = CliRunner().invoke(main, ["constraints", "--store", str(path), command])
        assert result.exit_code == (2 if table == "constraints" else 0)
        assert table == "evidence" or "is damaged: the constraint" in result.output


@pytest.mark.parametrize(
    "change", ["DELETE FROM meta WHERE name = ?", "UPDATE meta SET value = 'x' WHERE name = ?"]
)
def test_a_damaged_version_of_the_constraints(tmp_path: Path, change: str) -> None:
    _run(_create_store(tmp_path), change, "version")
    with pytest.raises(StoreError, match=r"is damaged: a number in it .* cannot be read"):
        _use_store(tmp_path)


def test_a_damaged_anchor(tmp_path: Path) -> None:
    path = _create_store(tmp_path)
    _run(path, "UPDATE anchors SET hash = 5, count = 'many'")
    with pytest.raises(StoreError, match="is damaged: an anchor cannot be read"):
        Guard.load(tmp_path / "policy.yaml", store=path).session("s")
    result = CliRunner().invoke(main, ["journal", "verify", "--store", str(path), str(path.parent)])
    assert result.exit_code == 2
    assert "is damaged: an anchor cannot be read" in result.output


def test_a_damaged_note_of_a_journal(tmp_path: Path) -> None:
    path = _create_store(tmp_path)
    _run(path, "INSERT INTO notes (note) VALUES (?)", b"{")
    result = CliRunner().invoke(main, ["journal", "verify", "--store", str(path), str(path.parent)])
    assert result.exit_code == 2
    assert "is damaged: a note cannot be read" in result.output


@pytest.mark.parametrize("seed", range(60))
def test_no_damage_raises_another_error(tmp_path: Path, seed: int) -> None:
    path = _create_store(tmp_path)
    data, rng = bytearray(path.read_bytes()), random.Random(seed)  # noqa: S311
    written = [offset for offset, byte in enumerate(data) if byte]
    for _ in range(rng.choice([1, 3, 20, 200])):
        data[rng.choice(written)] = rng.randrange(256)
    path.write_bytes(data)
    with contextlib.suppress(StoreError, JournalError):
        _use_store(tmp_path)
    for command in (
        ["constraints", "--store", str(path), "list"],
        ["journal", "verify", str(path.parent), "--store", str(path)],
    ):
        result = CliRunner().invoke(main, command)
        assert result.exception is None or isinstance(result.exception, SystemExit), (
            result.exception
        )
