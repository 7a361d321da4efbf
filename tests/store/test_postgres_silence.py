"""A database that neither answers nor refuses: decisions do not wait for it again and again."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from policyguard import Guard
from tests.store.dropping_proxy import DroppingProxy
from tests.store.postgres_server import Server, postgres

__all__ = ["postgres"]

pytest.importorskip("psycopg", reason="psycopg is not installed")

import psycopg

from policyguard.store.postgres.connection import Attempt, Connection
from policyguard.store.postgres.store import PostgresStore

POLICY = """
policyguard: 1
name: silent
on_internal_error: allow
"""


@pytest.fixture
def proxy(postgres: Server) -> Iterator[DroppingProxy]:
    proxy = DroppingProxy(postgres.port)
    yield proxy
    proxy.close()


def new_address(postgres: Server, proxy: DroppingProxy) -> str:
    return postgres.new_address().replace(f":{postgres.port}/", f":{proxy.port}/")


def load(postgres: Server, proxy: DroppingProxy, tmp_path: Path) -> Guard:
    policy = tmp_path / "p.yaml"
    policy.write_text(POLICY)
    return Guard.load(policy, store=new_address(postgres, proxy), journal=tmp_path / "journal")


def test_a_first_connection_is_waited_for(postgres: Server, proxy: DroppingProxy) -> None:
    """No decision waits for it yet."""
    address = new_address(postgres, proxy)
    proxy.is_dropping = True
    threading.Timer(1.5, setattr, (proxy, "is_dropping", False)).start()
    store = PostgresStore(address, caps=None)
    assert not [*store.anchors.all()]
    store.close()


@pytest.mark.parametrize("closes_store", [False, True])
@pytest.mark.parametrize("is_late", [False, True])
def test_an_attempt_that_is_given_up_leaves_no_connection(
    postgres: Server, is_late: bool, closes_store: bool
) -> None:
    address = postgres.new_address()
    made: list[Connection] = []
    may_connect, done = threading.Event(), threading.Event()

    def connect() -> Connection:
        assert may_connect.wait(20)
        made.append(Connection.connect(address))
        done.set()
        return made[0]

    store = PostgresStore(address, caps=None)
    if not is_late:
        may_connect.set()
    attempt = Attempt(connect)
    assert attempt.is_pending is is_late
    if closes_store:
        store._database._attempt = attempt
    else:
        attempt.abandon()
    store.close()
    may_connect.set()
    assert done.wait(20)
    assert attempt._ended.wait(20)
    assert made[0].closed
    with psycopg.connect(address) as connection:
        deadline = time.monotonic() + 20
        others = "SELECT 1 FROM pg_stat_activity WHERE datname = current_database() AND pid <> %s"
        while connection.execute(others, (connection.info.backend_pid,)).fetchall():
            assert time.monotonic() < deadline
            time.sleep(0.05)


@pytest.mark.slow
def test_a_silent_database_is_waited_for_once(
    postgres: Server, proxy: DroppingProxy, tmp_path: Path
) -> None:
    """One decision waits for seconds; later ones do not wait for a connection to fail."""
    with load(postgres, proxy, tmp_path) as guard:
        session = guard.session("s")
        assert session.check("look")
        proxy.is_dropping = True
        waits = []
        end = time.monotonic() + 16
        while time.monotonic() < end:
            began = time.monotonic()
            assert session.check("look").allowed
            waits.append(time.monotonic() - began)
            time.sleep(0.05)
        proxy.is_dropping = False
        assert sum(wait > 4 for wait in waits) <= 1
        deadline = time.monotonic() + 20
        while session.check("look").errors:
            assert time.monotonic() < deadline
            time.sleep(0.1)
