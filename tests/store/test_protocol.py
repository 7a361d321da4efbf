"""The contract of a store, for memory, SQLite and PostgreSQL."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from policyguard.store.boot import read_time_id
from policyguard.store.constraint_records import encode_msgpack
from policyguard.store.errors import SessionBusyError, StoreError
from policyguard.store.memory.store import MemoryStore
from policyguard.store.protocol import (
    REVOKED,
    Anchor,
    Caps,
    LoadTimes,
    Pruned,
    Repaired,
    RevocableRecord,
    Store,
)
from policyguard.store.sqlite.store import SqliteStore
from tests.store.postgres_server import Server, postgres

__all__ = ["postgres"]

CAPS = Caps(constraints=4, grants=4, evidence=4, anchors=4)


@pytest.fixture(params=["memory", "sqlite", "postgres"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    created: Store
    if request.param == "memory":
        created = MemoryStore(caps=CAPS)
    elif request.param == "sqlite":
        created = SqliteStore(tmp_path / "state" / "store.db", caps=CAPS)
    else:
        server: Server = request.getfixturevalue("postgres")
        from policyguard.store.postgres.store import PostgresStore

        created = PostgresStore(server.new_address(), caps=CAPS)
    yield created
    created.close()


def constraint(id_: str, *, key: str = "k", state: str = "active", at: int = 0) -> RevocableRecord:
    return RevocableRecord(id=id_, scope="p", key=key, state=state, updated_at=at, payload=b"{}")


def ids(store: Store) -> list[str]:
    return [record.id for record in store.constraints.list()]


def test_the_fingerprint_key_is_long_random_and_permanent(store: Store, tmp_path: Path) -> None:
    assert len(store.fingerprint_key) == 32
    assert store.fingerprint_key == store.fingerprint_key
    assert store.fingerprint_key != MemoryStore(caps=CAPS).fingerprint_key
    assert (
        store.fingerprint_key
        != SqliteStore(tmp_path / "other" / "store.db", caps=CAPS).fingerprint_key
    )


@pytest.mark.skipif(not read_time_id(), reason="the system names no boot")
def test_guards_of_one_boot_tell_the_same_time_and_none_before_the_latest(store: Store) -> None:
    assert store.anchor_time(1000, 10) == 1000
    assert store.anchor_time(900, 20) == 1000
    assert store.anchor_time(5000, 30) == 1000
    assert store.anchor_time(0, 5) == 1025  # restored from a snapshot: 1030 was told before
    assert store.anchor_time(0, 25) == 1025
    assert store.anchor_time(2000, 2) == 2000
    assert store.anchor_time(9000, 2) == 2000


def test_a_boot_without_a_name_shares_no_time(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file is of one machine, whose time goes on; a database may be of several."""
    monkeypatch.setattr(f"{type(store).__module__}.read_time_id", lambda: "", raising=False)
    assert store.anchor_time(1000, 10) == 1000
    latest = {"MemoryStore": 1000, "SqliteStore": 990, "PostgresStore": 900}
    assert store.anchor_time(900, 20) == latest[type(store).__name__]


def test_a_damaged_time_is_an_error(store: Store) -> None:
    if isinstance(store, MemoryStore):
        pytest.skip("nothing is decoded")
    database: Any = store._database  # type: ignore[attr-defined]  # of both
    store.anchor_time(1000, 10)
    database.execute("UPDATE meta SET value = substr(value, 3) WHERE substr(name, 1, 4) = 'time'")
    with pytest.raises(StoreError, match="its time"):
        store.anchor_time(1000, 20)


def test_an_anchor_is_stored_replaced_and_deleted(store: Store) -> None:
    anchors = store.anchors
    assert anchors.get("s") is None
    anchors.put(Anchor("s", "c", 1, "h1", 10))
    anchors.put(Anchor("s", "c", 2, "h2", 20, 7))
    anchors.put(Anchor("", "c", 1, "h", 10))
    assert anchors.get("s") == Anchor("s", "c", 2, "h2", 20, 7)
    assert [anchor.session for anchor in anchors.all()] == ["", "s"]
    anchors.delete("s")
    anchors.delete("never there")
    assert anchors.get("s") is None


def test_notes_of_journals_are_kept_in_order_up_to_the_cap(store: Store) -> None:
    anchors = store.anchors
    assert (list(anchors.notes()), anchors.get_load_times()) == ([], None)
    pruned = Pruned("s", "c", 1, "h", 10, 5, "core", "d")
    repaired = [Repaired("s", "c", 1, number, 0, 5, is_keyed=False) for number in range(5)]
    for note in (pruned, *repaired[:3]):
        anchors.add_note(note)
    assert list(anchors.notes()) == [pruned, *repaired[:3]]

    def fail() -> None:
        with store.transaction():
            anchors.add_note(repaired[3])
            anchors.put_load_times(LoadTimes(2, 2))
            raise ZeroDivisionError

    anchors.put_load_times(LoadTimes(1))
    with pytest.raises(ZeroDivisionError):
        fail()
    anchors.add_note(repaired[4])
    assert list(anchors.notes()) == [*repaired[:3], repaired[4]]
    assert anchors.count_evicted() == 0
    assert anchors.get_load_times() == LoadTimes(1)


def test_evicted_anchors_are_counted(store: Store) -> None:
    for number in range(6):
        store.anchors.put(Anchor(str(number), "c", 1, "h", 10))
    store.anchors.put(Anchor("5", "c", 2, "h", 20))
    assert store.anchors.count_evicted() == 2
    store.anchors.delete("4")

    def fail() -> None:
        with store.transaction():
            store.anchors.put(Anchor("7", "c", 1, "h", 10))
            store.anchors.put(Anchor("8", "c", 1, "h", 10))
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert store.anchors.count_evicted() == 2
    assert [anchor.session for anchor in store.anchors.all()] == ["2", "3", "5"]


def test_a_constraint_is_found_by_id_and_replaced(store: Store) -> None:
    records = constraint("b"), constraint("a"), constraint("c", key="other")
    assert all(store.constraints.put(record) for record in records)
    assert store.constraints.get("c") == records[2]
    assert store.constraints.get("d") is None
    moved = constraint("b", key="other", state="weak")
    store.constraints.put(moved)
    assert store.constraints.list() == (records[1], moved, records[2])


def test_a_record_is_updated_with_its_new_version(store: Store) -> None:
    seen: list[tuple[RevocableRecord | None, int]] = []

    def make(record: RevocableRecord | None, version: int) -> RevocableRecord:
        seen.append((record, version))
        return constraint("a", state=str(version))

    store.marks.update("a", make)
    store.marks.update("a", make)
    (before, first), (again, second) = seen
    assert before is None
    assert again == constraint("a", state=str(first))
    assert second > first
    assert store.marks.version() == second
    assert store.marks.changes(first).records == (constraint("a", state=str(second)),)
    with pytest.raises(ZeroDivisionError):
        store.marks.update("a", lambda *_: constraint(str(1 // 0)))
    assert store.marks.version() == second
    for number in range(6):
        for records in (store.marks, store.grants):
            records.update(str(number), lambda _, version, id_=str(number): constraint(id_))
    assert [record.id for record in store.grants.list()] == ["2", "3", "4", "5"]
    assert store.grants.changes(1).is_complete
    assert len(store.marks.list()) == 7, "which its guards bound"


def test_versions_go_on_after_one_that_is_given(store: Store) -> None:
    store.marks.put(constraint("a"))
    store.marks.advance(7)
    store.marks.advance(3)
    assert store.marks.version() == 7
    store.marks.update("b", lambda _, version: constraint("b", state=str(version)))
    assert store.marks.changes(7).records == (constraint("b", state="8"),)


def test_an_old_copy_does_not_undo_a_revocation(store: Store) -> None:
    stale = constraint("a")
    store.constraints.put(stale)
    revoked = store.constraints.revoke("a", by="ana", at=7)
    assert revoked is not None
    assert (revoked.state, revoked.revoked_by, revoked.updated_at) == (REVOKED, "ana", 7)
    assert store.constraints.get("a") == revoked
    assert store.constraints.put(stale) is False
    assert store.constraints.get("a") == revoked
    assert store.constraints.revoke("nobody", by="ana", at=7) is None


def test_changes_since_a_version(store: Store) -> None:
    constraints = store.constraints
    assert constraints.version() == 0
    assert constraints.changes(0).records == ()
    constraints.put(constraint("a"))
    constraints.put(constraint("b"))
    before = constraints.version()
    assert constraints.changes(before).records == ()
    assert constraints.changes(0).is_complete, "a reader without any gets all"
    constraints.put(constraint("c"))
    constraints.revoke("a", by="ana", at=1)
    since = constraints.changes(before)
    assert [(record.id, record.state) for record in since.records] == [
        ("a", REVOKED),
        ("c", "active"),
    ]
    assert not since.is_complete
    assert since.version == constraints.version() > before
    constraints.delete("b")
    after_removal = constraints.changes(since.version)
    assert after_removal.is_complete
    assert [record.id for record in after_removal.records] == ["a", "c"]
    assert constraints.changes(0).records == after_removal.records
    assert not constraints.changes(after_removal.version).is_complete
    assert constraints.changes(10**9).is_complete  # another store's version


def test_reading_changes_no_version(store: Store) -> None:
    store.constraints.put(constraint("a"))
    version = store.constraints.version()
    store.constraints.delete("nobody")
    store.constraints.revoke("nobody", by="ana", at=1)
    store.evidence.put("p", "k", b"1")
    store.anchors.put(Anchor("s", "c", 1, "h", 1))
    assert store.constraints.version() == version


def test_evidence_is_stored_replaced_and_deleted(store: Store) -> None:
    evidence = store.evidence
    assert evidence.get("p", "k") is None
    evidence.put("p", "k", b"1")
    evidence.put("p", "k", b"\x00\xff2")
    evidence.put("p", "l", b"3")
    evidence.put("q", "k", b"")
    assert evidence.get("p", "k") == b"\x00\xff2"
    assert evidence.get("q", "k") == b""
    assert evidence.list() == (("p", "k", b"\x00\xff2"), ("p", "l", b"3"), ("q", "k", b""))
    evidence.delete("p", "k")
    evidence.delete("p", "unknown")
    assert [key for _, key, _ in evidence.list()] == ["l", "k"]


def test_the_least_recently_used_are_evicted(store: Store) -> None:
    for name in "abcd":
        store.constraints.put(constraint(name))
        store.evidence.put("p", name, b"")
        store.anchors.put(Anchor(name, "c", 1, "h", 1))
    store.constraints.put(constraint("a"))
    version = store.constraints.version()
    store.evidence.put("p", "b", b"again")
    store.anchors.put(Anchor("c", "c", 2, "h", 1))
    store.constraints.put(constraint("e"))
    store.evidence.put("p", "e", b"")
    store.anchors.put(Anchor("e", "c", 1, "h", 1))
    assert ids(store) == ["a", "c", "d", "e"]
    assert [key for _, key, _ in store.evidence.list()] == ["b", "c", "d", "e"]
    assert [anchor.session for anchor in store.anchors.all()] == ["b", "c", "d", "e"]
    assert store.constraints.changes(version).is_complete  # `b` is gone


def test_a_failed_transaction_is_rolled_back(store: Store) -> None:
    store.constraints.put(constraint("a"))
    store.evidence.put("p", "k", b"1")
    before = store.constraints.list(), store.evidence.list()
    version = store.constraints.version()

    def fail() -> None:
        with store.transaction():
            store.evidence.put("p", "k", b"2")
            store.evidence.put("p", "l", b"3")
            with store.transaction():
                store.constraints.put(constraint("b"))
                store.constraints.put(constraint("a", key="moved"))
                store.constraints.delete("a")
            store.anchors.put(Anchor("s", "c", 1, "h", 1))
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert (store.constraints.list(), store.evidence.list()) == before
    assert store.anchors.get("s") is None
    store.constraints.put(constraint("c"))
    assert [record.id for record in store.constraints.changes(version).records][-1] == "c"


def test_a_transaction_is_one_step_to_threads(store: Store) -> None:
    def learn() -> None:
        for _ in range(100):
            with store.transaction():
                count = int(store.evidence.get("p", "k") or b"0")
                store.evidence.put("p", "k", str(count + 1).encode())

    threads = [threading.Thread(target=learn) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert store.evidence.get("p", "k") == b"400"


def test_a_session_lock_is_exclusive(store: Store) -> None:
    lock = store.lock_session("s")
    assert lock.is_held
    with pytest.raises(SessionBusyError, match="session 's' is held by another guard"):
        store.lock_session("s")
    with store.lock_session("other") as other:
        assert other.is_held
    assert not other.is_held
    again = store.lock_session("other")
    other.release()
    assert again.is_held
    again.release()
    lock.release()
    lock.release()
    assert not lock.is_held
    with store.lock_session("s"):
        pass


@pytest.mark.parametrize("text", ["", "a\x00b", "𝕊 'quoted' \"–\" ; DROP TABLE", "\ud800"])
def test_any_text_is_a_key(store: Store, text: str) -> None:
    store.evidence.put(text, text, b"1")
    assert store.evidence.get(text, text) == b"1"
    store.anchors.put(Anchor(text, "c", 1, "h", 1))
    found = store.anchors.get(text)
    assert found is not None
    assert found.count == 1
    store.constraints.put(
        RevocableRecord(id=text, scope=text, key=text, state="", updated_at=-1, payload=b"")
    )
    assert len(store.constraints.list()) == 1
    store.lock_session(text).release()


@pytest.mark.parametrize(
    ("number", "stored"),
    [
        (-(2**63), -(2**63)),
        (2**64 - 1, 2**64 - 1),
        (-(2**63) - 1, float(-(2**63))),
        (2**64, float(2**64)),
        (-(10**400), -sys.float_info.max),
    ],
)
def test_integers_beyond_64_bits_are_stored_as_floats(number: int, stored: float) -> None:
    found = msgspec.msgpack.decode(encode_msgpack(["\ud800", number]))[1]
    assert (found, type(found)) == (stored, type(stored))


def test_the_evidence_of_a_scope_goes_with_its_keys(store: Store) -> None:
    for scope in ("session:a", "session:a\x1fgpu", "session:a2", "project:"):
        store.evidence.put(scope, "k", b"x")
    found = [scope for scope, _, _ in store.evidence.list("session:a")]
    assert found == ["session:a", "session:a\x1fgpu"]
    store.evidence.delete_scope("session:a")
    assert [scope for scope, _, _ in store.evidence.list()] == ["project:", "session:a2"]
