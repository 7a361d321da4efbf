"""What hosts leave behind is deleted when it is due, and excuses nothing that was changed."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from policyguard.journal.chain import Hasher
from policyguard.journal.retention import PruneResult, prune
from policyguard.journal.retention_terms import Retention
from policyguard.store.postgres.store import PostgresStore
from policyguard.store.protocol import Pruned
from tests.store.postgres_server import postgres
from tests.store.test_handover import (
    Host,
    check,
    codes,
    cut_connections,
    hosts,
    rewrite_from,
)

__all__ = ["hosts", "postgres"]

pytest.importorskip("psycopg", reason="psycopg is not installed")
import psycopg
import psycopg.sql

FUTURE = 4_000_000_000 * 10**9


def prune_host(host: Host, before: int = FUTURE, *, dry_run: bool = False) -> PruneResult:
    host.journals.mkdir(exist_ok=True)
    store = PostgresStore(host.address, caps=None)
    retention = Retention(
        keep_for=1, max_journals=sys.maxsize, max_gap=1, policy="fleet", digest=""
    )
    try:
        return prune(
            host.journals,
            store.anchors,
            retention,
            now=FUTURE,
            before=before,
            hasher=Hasher(None),
            lock_session=store.lock_session,
            dry_run=dry_run,
        )
    finally:
        store.close()


def rows(address: str) -> dict[str, int]:
    with psycopg.connect(address) as connection:
        counted = {}
        for table in ("anchors", "lines", "holders", "notes"):
            query = psycopg.sql.SQL("SELECT count(*) FROM {}").format(psycopg.sql.Identifier(table))
            row = connection.execute(query).fetchone()
            assert row is not None
            counted[table] = row[0]
        return counted


def test_sessions_of_a_host_that_never_comes_back_are_deleted(hosts: tuple[Host, Host]) -> None:
    one, two = hosts
    one.call("look")
    assert prune_host(two, before=1).deleted == ()
    assert rows(one.address)["anchors"] == 1
    (deleted,) = prune_host(two).deleted
    assert str(deleted).endswith(one.file().name)
    assert rows(one.address) == {"anchors": 0, "lines": 0, "holders": 0, "notes": 1}
    assert "journal/missing-file" not in codes(check(one.address, two))
    assert not check(one.address, one, two).has_failed
    one_file = one.file()
    assert prune_host(one).deleted == (one_file,), "it came back after all"
    assert codes(check(one.address, one, two)) == ["journal/pruned"]


def test_a_dry_run_shows_what_would_go_and_deletes_nothing(hosts: tuple[Host, Host]) -> None:
    one, two = hosts
    one.call("look")
    two.call("look", session="t")
    aside = two.file("t").with_name(f"{two.file('t').name}.3.aside")
    aside.write_bytes(two.file("t").read_bytes())
    before = rows(one.address)
    shown = prune_host(two, dry_run=True).deleted
    assert len(shown) == 3
    assert rows(one.address) == before
    assert aside.exists()
    assert two.file("t").exists()
    assert prune_host(two).deleted == shown


def test_a_time_set_back_in_the_store_deletes_no_copy(hosts: tuple[Host, Host]) -> None:
    one, two = hosts
    one.call("look")
    with psycopg.connect(one.address, autocommit=True) as connection:
        connection.execute("UPDATE anchors SET at = 1")
    assert prune_host(two, before=1_000).deleted == ()
    assert rows(one.address)["anchors"] == 1


def test_a_copy_that_was_changed_is_kept_and_named(hosts: tuple[Host, Host]) -> None:
    one, two = hosts
    one.call("look")
    one.call("read")
    with psycopg.connect(one.address, autocommit=True) as connection:
        connection.execute("DELETE FROM lines WHERE start > 0")
    result = prune_host(two)
    assert result.deleted == ()
    assert "differs from its anchor" in str(result.kept[0])
    assert rows(one.address)["anchors"] == 1


def test_a_copy_of_an_open_session_is_kept(hosts: tuple[Host, Host]) -> None:
    one, two = hosts
    one.call("look")
    with one.load() as guard:
        session = guard.session("s")
        assert prune_host(two).deleted == ()
        assert session.check("read").allowed
    assert rows(one.address)["anchors"] == 1


def test_a_file_that_is_behind_goes_when_the_session_was_pruned(hosts: tuple[Host, Host]) -> None:
    one, two = hosts
    one.call("look")
    two.call("look")
    behind, ended = one.file(), two.file()
    assert prune_host(two).deleted == (ended,)
    assert not check(one.address, one, two).has_failed
    two.call("look")  # it begins anew there
    (finding, _) = check(one.address, one, two).findings
    assert finding.code == "journal/no-anchor"
    assert "of a journal that was pruned: none of" in finding.message
    assert behind in prune_host(one).deleted
    assert not behind.exists()


def test_lines_that_were_put_aside_go_when_they_are_due(hosts: tuple[Host, Host]) -> None:
    one, _ = hosts
    one.call("look")
    aside = one.file().with_name(f"{one.file().name}.3.aside")
    aside.write_bytes(one.file().read_bytes())
    altered = one.file().with_name(f"{one.file().name}.4.aside")
    altered.write_bytes(one.file().read_bytes().replace(b"look", b"lock"))
    assert prune_host(one, before=1).deleted == ()
    result = prune_host(one)
    assert aside in result.deleted
    assert not aside.exists()
    assert altered.exists()
    assert "line" in str(result.kept[0])


Tampering = Callable[[Path], object]


def cut(path: Path) -> None:
    path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[:2]))


@pytest.mark.parametrize("tamper", [cut, lambda path: rewrite_from(path, 2)])
def test_a_note_does_not_excuse_a_changed_file_where_the_journal_ended(
    hosts: tuple[Host, Host], tamper: Tampering
) -> None:
    one, two = hosts
    one.call("look", "read")
    prune_host(two)
    assert not check(one.address, one).has_failed
    tamper(one.file())
    for places in ((one,), (one, two)):
        assert check(one.address, *places).has_failed


def test_an_old_file_in_place_of_one_that_was_put_is_found(hosts: tuple[Host, Host]) -> None:
    """A session was pruned and began anew here; then it went on elsewhere."""
    one, two = hosts
    one.call("look")
    old = one.file().read_bytes()
    prune_host(one)
    one.call("read")
    two.call("look")
    assert not check(one.address, one).has_failed
    one.file().write_bytes(old)
    assert check(one.address, one).has_failed


def test_an_unanchored_journal_of_another_host_leaves_a_note_of_its_place(
    hosts: tuple[Host, Host],
) -> None:
    one, two = hosts
    one.call("look")
    prune_host(two)
    store = PostgresStore(one.address, caps=None)
    (note,) = store.anchors.notes()
    store.close()
    assert isinstance(note, Pruned)
    assert note.place.endswith(str(one.journals))


def test_numbers_of_openings_never_restart(hosts: tuple[Host, Host]) -> None:
    """Someone deletes the row of an open session; a frozen host must not fit the next one."""
    one, two = hosts
    with one.load() as guard:
        session = guard.session("s")
        assert session.check("look")
        with psycopg.connect(one.address, autocommit=True) as connection:
            connection.execute("DELETE FROM holders")
        for _ in range(60):  # `one` may be back before `two` has asked
            if session.closed:
                break
            cut_connections(one.address)
            two.call("look")
            for _ in range(20):
                if session.closed:
                    break
                time.sleep(0.05)
        assert session.closed
        assert not session.check("look")
    assert not check(one.address, one, two).has_failed


def test_a_session_that_was_pruned_begins_anew_where_its_file_is_behind(
    hosts: tuple[Host, Host],
) -> None:
    one, two = hosts
    one.call("look", "read")
    two.call("look", "read", "look")
    assert not one.call("read")[0], "its budget is used up"
    behind = one.file().read_bytes()
    two.call("read")
    prune_host(two)
    one.file().write_bytes(behind)
    (finding, _) = check(one.address, one).findings
    assert finding.code == "journal/no-anchor"
    assert "of a journal that was pruned: none of" in finding.message
    first, *others = one.call(*["look"] * 5)
    assert [*map(bool, (first, *others))] == [True] * 4 + [False]
    assert first.errors[0].id == "journal/pruned"
    (aside,) = one.journals.glob("*.aside")
    assert aside.read_bytes() == behind
    assert not check(one.address, one, two).has_failed
    assert aside in prune_host(one).deleted


def test_a_session_that_was_pruned_goes_on_where_it_ended(hosts: tuple[Host, Host]) -> None:
    one, two = hosts
    one.call("look", "read", "look")
    prune_host(two)
    assert [*map(bool, one.call("look", "read"))] == [True, False]
    assert not [*one.journals.glob("*.aside")]
