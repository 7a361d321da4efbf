"""The thread that puts lines of journals into a store of several hosts."""

from __future__ import annotations

import gc
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from policyguard import Guard
from policyguard.guard.journals import anchoring
from policyguard.guard.journals.anchoring import JournalAnchoring
from policyguard.store.protocol import Caps
from tests.store.postgres_server import postgres
from tests.store.test_handover import Host, PostgresStore, hosts, wait_until_put

__all__ = ["hosts", "postgres"]

CAPS = Caps(constraints=9, grants=9, evidence=9, anchors=9)
FORKING = """
import os, sys
from policyguard import Guard
guard = Guard.load(sys.argv[1], store=sys.argv[2], journal=sys.argv[3])
guard.session("parent").check("look")
child = os.fork()
if child:
    os.waitpid(child, 0)
    os._exit(0)
session = guard.session("s")
session.record(session.check("look"), result="ok")
print("up", flush=True)
sys.stdin.readline()
os._exit(0)
"""


def test_lines_of_a_forked_process_are_put_too(hosts: tuple[Host, Host]) -> None:
    host, _ = hosts
    arguments = [str(host.policy), host.address, str(host.journals)]
    with subprocess.Popen(
        [sys.executable, "-c", FORKING, *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as forking:
        assert forking.stdout is not None
        assert forking.stdout.readline() == "up\n"
        wait_until_put(host)
        forking.communicate()


def test_the_thread_ends_when_its_guard_is_dropped(hosts: tuple[Host, Host]) -> None:
    host, _ = hosts
    store = PostgresStore(host.address, caps=CAPS)
    before = {*threading.enumerate()}
    guard = Guard.load(host.policy, store=store, journal=host.journals)
    assert guard.session("s").check("look").allowed
    (thread,) = (one for one in {*threading.enumerate()} - before if "anchor" in one.name)
    del guard
    gc.collect()
    thread.join(30)
    assert not thread.is_alive()
    store.close()


def test_the_thread_reports_an_error_and_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    looks = threading.Semaphore(0)

    def fail() -> None:
        looks.release()
        raise RuntimeError("defect")

    guard = Guard.load("core", store=tmp_path / "state" / "store.db")
    with guard, monkeypatch.context() as patch:
        patch.setattr(anchoring, "_PAUSE", 0.0)
        patch.setattr(guard._journal, "anchor_all", fail)
        thread = JournalAnchoring(guard)
        thread.start()
        assert all(looks.acquire(timeout=30) for _ in range(2))
        thread.close()
    assert "lines of journals could not be put into the store" in caplog.text
