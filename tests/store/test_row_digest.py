"""Rows that another program changed are found; those that we change are not."""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing, suppress
from pathlib import Path

import pytest

from policyguard.store.errors import StoreError
from policyguard.store.protocol import Anchor, Caps, Repaired, RevocableRecord
from policyguard.store.quota.protocol import QuotaKey, QuotaSpec
from policyguard.store.sqlite.database import Database
from policyguard.store.sqlite.row_digest import hash_row
from policyguard.store.sqlite.schema import APPLICATION_ID, DIGESTS, MIGRATIONS
from policyguard.store.sqlite.store import SqliteStore

CAPS = Caps(constraints=3, grants=3, evidence=3, anchors=3)


def record(number: int) -> RevocableRecord:
    return RevocableRecord(
        id=f"k{number}", scope="s", key="\ud800ä", state="on", updated_at=number, payload=b"\xff"
    )


def fill(store: SqliteStore) -> None:
    """Write, replace, evict and delete rows of each table."""
    assert store.fingerprint_key
    for number in range(5):
        store.constraints.put(record(number))
        store.constraints.put(record(number))
        store.anchors.put(Anchor(f"s{number}", "c", 1, "h", 1))
        store.anchors.add_note(Repaired("s", "c", number, 1, 0, 0, is_keyed=False))
    store.constraints.revoke("k4", by="ann", at=1)
    store.constraints.delete("k3")
    for number in range(4):
        key = QuotaKey("b", f"\ud800{number}", f"\ud800{number}")
        spec = QuotaSpec(limit=100, within=number * 10 or None, max_keys=3)
        quota = store.quotas.open(key, spec)
        for at in range(3):
            store.quotas.try_charge_all([(quota, 1)], at * 1000)
    store.quotas.close(())


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "s.db"
    store = SqliteStore(path, caps=CAPS)
    fill(store)
    store.close()
    return path


def find_edited(path: Path) -> tuple[str, ...]:
    return SqliteStore(path, caps=None, read_only=True).find_edited()


def edit(path: Path, statement: str) -> None:
    with closing(sqlite3.connect(path)) as connection, connection:
        assert connection.execute(statement).rowcount > 0
    connection.close()


def test_our_own_writes_leave_no_difference(path: Path) -> None:
    assert find_edited(path) == ()
    with SqliteStore(path, caps=CAPS).transaction():
        pass
    fill(SqliteStore(path, caps=CAPS))
    assert find_edited(path) == ()


EDITS = {
    "purses": [
        "UPDATE purses SET account = replace(account, '3', '0') WHERE instr(account, '3')",
        "UPDATE purses SET until = until + 1 WHERE until",
        "UPDATE purses SET digest = NULL",
        "DELETE FROM purses WHERE key LIKE '%1'",
        "INSERT INTO purses SELECT budget, 'other', account, until, digest FROM purses LIMIT 1",
    ],
    "constraints": [
        "DELETE FROM constraints WHERE id = 'k2'",
        "UPDATE constraints SET state = 'revoked', revoked_by = 'bob' WHERE id = 'k2'",
        "UPDATE constraints SET revoked_by = 'bob' WHERE id = 'k4'",
        "UPDATE constraints SET payload = x'00' WHERE id = 'k2'",
        "UPDATE constraints SET updated_at = cast(updated_at + 1 AS text) WHERE id = 'k2'",
        "INSERT INTO constraints SELECT 'k9', scope, key, state, updated_at, payload, revoked_by, "
        "version, used FROM constraints LIMIT 1",
        "DELETE FROM meta WHERE name = 'digest constraints'",
        "UPDATE meta SET value = 0 WHERE name = 'digest constraints'",
    ],
    "meta": [
        "UPDATE meta SET value = randomblob(32) WHERE name = 'key'",
        "DELETE FROM meta WHERE name = 'key'",
    ],
    "notes": [
        "DELETE FROM notes WHERE id = 5",
        "UPDATE notes SET note = replace(note, '1', '2')",
    ],
}


@pytest.mark.parametrize(
    ("table", "statement"),
    [(table, statement) for table, statements in EDITS.items() for statement in statements],
)
def test_an_edited_row_is_found_and_stays_found(path: Path, table: str, statement: str) -> None:
    edit(path, statement)
    assert find_edited(path) == (table,)
    with suppress(StoreError):
        fill(SqliteStore(path, caps=None))
    assert table in find_edited(path)


def test_an_edited_budget_is_not_charged(path: Path) -> None:
    edit(path, EDITS["purses"][0])
    with pytest.raises(StoreError, match="budget `b` in it was changed by another program"):
        fill(SqliteStore(path, caps=CAPS))


def test_text_that_is_none_is_found(path: Path) -> None:
    edit(path, "UPDATE constraints SET payload = cast(x'fe' AS text) WHERE id = 'k2'")
    edit(path, "UPDATE purses SET key = cast(x'fe' AS text) WHERE key LIKE '%1'")
    assert find_edited(path) == ("constraints", "purses")


def test_a_transaction_that_is_rolled_back_leaves_no_difference(path: Path) -> None:
    store = SqliteStore(path, caps=CAPS)

    def write() -> None:
        with store.transaction():
            store.constraints.put(record(8))
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        write()
    assert find_edited(path) == ()


def test_a_process_that_dies_leaves_no_difference(path: Path) -> None:
    child = os.fork()
    if not child:
        fill(SqliteStore(path, caps=CAPS))
        os._exit(0)
    os.waitpid(child, 0)
    fill(SqliteStore(path, caps=CAPS))
    assert find_edited(path) == ()


def test_a_store_of_an_earlier_version_gets_digests(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    before = MIGRATIONS.index(DIGESTS)
    old = Database(path, application_id=APPLICATION_ID, migrations=MIGRATIONS[:before], timeout=1)
    old.execute("INSERT INTO purses (budget, key, account, until) VALUES ('b', 'k', x'5b5d', 3)")
    old.execute("INSERT INTO constraints VALUES ('k', 's', 'k', 'on', 1, x'00', '', 1, 1)")
    old.close()
    SqliteStore(path, caps=CAPS).constraints.put(record(1))
    assert find_edited(path) == ()
    edit(path, "DELETE FROM constraints WHERE id = 'k'")
    assert find_edited(path) == ("constraints",)


def test_digests_do_not_depend_on_the_version_of_python() -> None:
    """Hashes are of ASCII text, whatever characters this Python can print."""
    assert hash_row("ä\U0001fae8", 1, None, b"\xff").hex()[:16] == "38c53d12b3de9d80"
