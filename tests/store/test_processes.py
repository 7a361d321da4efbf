"""Many processes on one store: no write is lost, and the locks of a dead process are free."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import gc
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from policyguard.store.errors import SessionBusyError, StoreError
from policyguard.store.protocol import Caps, RevocableRecord, Store
from policyguard.store.session_locks import LockFile
from policyguard.store.sqlite.store import SqliteStore
from tests.store.test_protocol import postgres, store

__all__ = ["postgres", "store"]

CAPS = Caps(constraints=10_000, grants=10_000, evidence=10_000, anchors=10_000)

PREAMBLE = """
import os, sys, time
from policyguard.store.sqlite.store import SqliteStore
from policyguard.store.errors import SessionBusyError
from policyguard.store.protocol import Caps, RevocableRecord
store = SqliteStore(sys.argv[1], caps=Caps(
    constraints=10_000, grants=10_000, evidence=10_000, anchors=10_000))
"""


def start(path: Path, code: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", PREAMBLE + code, str(path)], stdout=subprocess.PIPE, text=True
    )


def in_child(act: Callable[[], object]) -> str:
    """What a forked child says, or the error that it meets."""
    reader, writer = os.pipe()
    child = os.fork()
    if not child:
        try:
            output = str(act())
        except Exception as error:  # noqa: BLE001 - the child tells whatever it meets
            output = f"{type(error).__name__}: {error}"
        os.write(writer, output.encode())
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as pipe:
        output = pipe.read()
    os.waitpid(child, 0)
    return output


def test_processes_that_learn_at_once_equal_one_that_learns_all(tmp_path: Path) -> None:
    path = tmp_path / "state" / "store.db"
    learn = """
for number in range(100):
    with store.transaction():
        seen = int(store.evidence.get("p", "k") or b"0") + 1
        store.evidence.put("p", "k", str(seen).encode())
        if seen % 100 == 0:
            store.constraints.put(RevocableRecord(
                id=f"c{seen}", scope="p", key="k", state="active", updated_at=0, payload=b""))
"""
    # Eight at once also make the file, its tables and its key at once.
    processes = [start(path, learn + "print(store.fingerprint_key.hex())") for _ in range(8)]
    keys = {process.communicate(timeout=120)[0] for process in processes}
    assert [process.returncode for process in processes] == [0] * 8
    assert len(keys) == 1
    store = SqliteStore(path, caps=CAPS)
    assert store.evidence.get("p", "k") == b"800"
    assert [one.id for one in store.constraints.list()] == [f"c{n}00" for n in range(1, 9)]
    assert store.constraints.version() == 8


def test_another_process_sees_a_change_at_once(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "store.db", caps=CAPS)
    before = store.constraints.version()
    code = 'store.constraints.put(RevocableRecord(id="c", scope="p", key="k", state="active", '
    process = start(store.path, code + 'updated_at=0, payload=b""))')
    process.communicate(timeout=60)
    assert [one.id for one in store.constraints.changes(before).records] == ["c"]
    store.constraints.revoke("c", by="ana", at=1)
    process = start(store.path, 'print(store.constraints.get("c").state)')
    assert process.communicate(timeout=60)[0] == "revoked\n"


def test_a_process_that_is_killed_leaves_whole_transactions(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    code = """
print("up", flush=True)
number = 0
while True:
    number += 1
    with store.transaction():
        store.evidence.put("p", "a", str(number).encode())
        store.evidence.put("p", "b", str(number).encode())
"""
    for wait in (0.0, 0.01, 0.03, 0.1):
        process = start(path, code)
        assert process.stdout is not None
        assert process.stdout.readline() == "up\n"
        time.sleep(wait)
        process.kill()
        process.communicate()
        store = SqliteStore(path, caps=CAPS)
        assert store.evidence.get("p", "a") == store.evidence.get("p", "b")
        store.evidence.put("p", "c", b"")
        store.close()


def test_a_session_lock_is_free_when_its_process_has_died(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "store.db", caps=CAPS)
    holder = start(
        store.path, 'lock = store.lock_session("s"); print("up", flush=True); time.sleep(60)'
    )
    assert holder.stdout is not None
    assert holder.stdout.readline() == "up\n"
    with pytest.raises(SessionBusyError) as refused:
        store.lock_session("s")
    with pytest.raises(SessionBusyError) as again:  # while the first error is kept
        store.lock_session("s")
    for error in (refused.value, again.value):
        assert "session 's' is held by another process; close it" in str(error)
        assert "each policy has a service of its own" in str(error)
    with store.lock_session("t"):
        pass
    holder.send_signal(signal.SIGKILL)
    holder.communicate()
    with store.lock_session("s"):
        late = 'try:\n  store.lock_session("s")\nexcept SessionBusyError: print("busy")'
        assert start(store.path, late).communicate(timeout=60)[0] == "busy\n"
    assert start(store.path, late).communicate(timeout=60)[0] == ""


def test_a_process_lock_is_of_one_number(tmp_path: Path) -> None:
    SqliteStore(tmp_path / "store.db", caps=CAPS).close()
    hold = """
from policyguard.store.session_locks import LockFile
lock = LockFile(PATH).acquire_process_lock(8)
print("up", flush=True); time.sleep(60)
"""
    locks = tmp_path / "locks"
    holder = start(
        tmp_path / "store.db", hold.replace("PATH", f"__import__('pathlib').Path({str(locks)!r})")
    )
    assert holder.stdout is not None
    assert holder.stdout.readline() == "up\n"
    file = LockFile(locks)
    own = file.acquire_process_lock(9)
    asked = (7, 8, 9, 10)
    expected = [False, True, True, False]
    assert [file.is_process_alive(number) for number in asked] == expected
    ask = f"""
from policyguard.store.session_locks import LockFile
file = LockFile(__import__("pathlib").Path({str(locks)!r}))
print([file.is_process_alive(number) for number in {asked}])
"""
    other = start(tmp_path / "store.db", ask).communicate(timeout=60)[0]
    assert other == f"{expected}\n", "to ask neither takes nor frees a lock"
    holder.send_signal(signal.SIGKILL)
    holder.communicate()
    assert not file.is_process_alive(8)
    own.release()
    assert not file.is_process_alive(9)


def test_whether_any_process_holds_a_session_is_seen_without_a_lock(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "store.db", caps=CAPS)
    ask = "print(store.has_locks())"
    assert not store.has_locks()
    assert start(store.path, ask).communicate(timeout=60)[0] == "False\n", "nothing stays locked"
    with store.lock_session("s") as lock:
        assert store.has_locks()
        assert start(store.path, ask).communicate(timeout=60)[0] == "True\n"
        assert lock.is_held
    assert start(store.path, ask).communicate(timeout=60)[0] == "False\n"


def test_a_disk_that_has_no_locks_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Such as one of a network without its lock service, which no test has."""
    store = SqliteStore(tmp_path / "store.db", caps=CAPS)
    store.lock_session("s").release()
    file = LockFile(tmp_path / "locks")
    lock = fcntl.lockf

    def fail(descriptor: int, command: int, *where: int) -> None:
        if command & fcntl.LOCK_EX:
            raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))
        lock(descriptor, command, *where)

    with monkeypatch.context() as patch:
        patch.setattr("policyguard.store.session_locks.fcntl.lockf", fail)
        for act in (
            lambda: store.lock_session("s"),
            lambda: file.acquire_process_lock(8),
            lambda: file.is_process_alive(8),
            store.has_locks,
        ):
            with pytest.raises(StoreError, match="cannot be locked: No locks available; use"):
                act()
    assert store.lock_session("s").is_held


def test_closing_one_store_keeps_the_locks_of_another(tmp_path: Path) -> None:
    one, two = (SqliteStore(tmp_path / "store.db", caps=CAPS) for _ in range(2))
    lock = one.lock_session("a")
    two.lock_session("b").release()
    two.close()
    del two
    late = 'try:\n  store.lock_session("a")\nexcept SessionBusyError: print("busy")'
    assert start(one.path, late).communicate(timeout=60)[0] == "busy\n"
    assert lock.is_held


def test_a_garbage_collected_lock_is_released(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "store.db", caps=CAPS)
    locks = [store.lock_session("a"), store.lock_session("b")]
    late = 'for s in "ab":\n  try: store.lock_session(s)\n  except SessionBusyError: print(s)'
    del locks[0]
    gc.collect()
    assert start(store.path, late).communicate(timeout=60)[0] == "b\n"
    with pytest.raises(SessionBusyError):
        store.lock_session("b")
    locks.clear()
    gc.collect()
    assert start(store.path, late).communicate(timeout=60)[0] == ""
    assert [store.lock_session(session).is_held for session in "ab"] == [True, True]


def test_locks_are_released_whenever_the_garbage_collector_runs(tmp_path: Path) -> None:
    """Even while another lock is being acquired, by the same thread or another."""
    store = SqliteStore(tmp_path / "store.db", caps=CAPS)

    def work() -> None:
        for number in range(150):
            cycle: list[object] = [store.lock_session(f"{threading.get_ident()} {number}")]
            cycle.append(cycle)
            del cycle

    threshold = gc.get_threshold()
    gc.set_threshold(5)
    try:
        threads = [threading.Thread(target=work, daemon=True) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        assert not any(thread.is_alive() for thread in threads)
    finally:
        gc.set_threshold(*threshold)
    gc.collect()
    store.lock_session("last").release()
    late = f"""
for thread in {[thread.ident for thread in threads]}:
    for number in range(150):
        store.lock_session(f"{{thread}} {{number}}").release()
print("free")"""
    assert start(store.path, late).communicate(timeout=60)[0] == "free\n"


def test_a_lock_is_held_until_its_process_has_ended(tmp_path: Path) -> None:
    """Also while it runs what was registered before all else, and so comes last."""
    first = """
import atexit, subprocess, sys
atexit.register(lambda: subprocess.run([sys.executable, "-c", sys.argv[2], sys.argv[1]]))
"""
    late = 'try:\n  store.lock_session("s")\nexcept SessionBusyError: print("busy")'
    code = f'{first}{PREAMBLE}lock = store.lock_session("s")'
    command = [sys.executable, "-c", code, str(tmp_path / "store.db"), PREAMBLE + late]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout == "busy\n"
    assert start(tmp_path / "store.db", late).communicate(timeout=60)[0] == ""


def test_a_forked_child_and_its_parent_go_on(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "store.db", caps=CAPS)
    store.evidence.put("p", "k", b"0")

    def work() -> bytes | None:
        for _ in range(50):
            with store.transaction():
                store.evidence.put(
                    "p", "k", str(int(store.evidence.get("p", "k") or 0) + 1).encode()
                )
        return store.evidence.get("p", "k")

    thread = threading.Thread(target=work)  # a fork in the middle of another thread's work
    thread.start()
    output = in_child(work)
    thread.join()
    work()
    assert 50 <= int(output.strip("b'")) <= 100
    assert store.evidence.get("p", "k") == b"150"


def test_a_forked_child_does_not_inherit_a_lock(store: Store) -> None:
    lock = store.lock_session("s")
    assert in_child(lambda: lock.is_held) == "False"
    assert "SessionBusyError" in in_child(lambda: store.lock_session("s"))
    assert in_child(lock.release) == "None"
    assert lock.is_held


def test_a_forked_child_releases_no_lock_of_its_parent(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "store.db", caps=CAPS)
    lock = store.lock_session("s")
    assert in_child(lock.release) == "None"
    late = 'try:\n  store.lock_session("s")\nexcept SessionBusyError: print("busy")'
    assert start(store.path, late).communicate(timeout=60)[0] == "busy\n"


def test_a_forked_child_can_lock_what_its_dead_parent_held(tmp_path: Path) -> None:
    code = """
lock = store.lock_session("s")
if os.fork():
    os._exit(0)
while os.getppid() != 1 and not os.path.exists(sys.argv[1] + ".dead"):
    time.sleep(0.01)
store.lock_session("s")
print("held")
"""
    process = start(tmp_path / "store.db", code)
    process.wait(timeout=60)
    (tmp_path / "store.db.dead").touch()
    assert process.communicate(timeout=60)[0] == "held\n"


def test_threads_of_a_forked_child_may_use_the_store(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "store.db", caps=CAPS)
    store.evidence.put("p", "k", b"1")

    def work() -> str:
        thread = threading.Thread(target=store.evidence.put, args=("p", "k", b"2"), daemon=True)
        thread.start()
        thread.join(10)
        return "stuck" if thread.is_alive() else "done"

    assert in_child(work) == "done"
    assert store.evidence.get("p", "k") == b"2"


def test_a_fork_in_the_middle_of_a_transaction_is_an_error(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "store.db", caps=CAPS)
    with store.transaction():
        store.evidence.put("p", "k", b"1")
        output = in_child(lambda: store.evidence.put("p", "k", b"2"))
    assert "StoreError" in output
    assert "forked in the middle of a transaction; fork outside transactions" in output
    assert store.evidence.get("p", "k") == b"1"


def test_no_connection_is_open_while_a_process_forks(tmp_path: Path) -> None:
    """SQLite's own lock table must not reach the child: see `policyguard.store.sqlite.database`."""
    store = SqliteStore(tmp_path / "store.db", caps=CAPS)
    store.evidence.put("p", "k", b"1")
    assert str(store.path) in open_files()
    assert repr(str(store.path)) not in in_child(open_files)
    assert str(store.path) not in open_files()
    assert store.evidence.get("p", "k") == b"1"


def open_files() -> list[str]:
    """The files that this process has open."""
    names = []
    for descriptor in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):  # the one that lists them
            names.append(str(descriptor.readlink()))
    return names


def test_an_error_in_one_process_does_not_affect_another(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "store.db", caps=CAPS)
    store.constraints.put(
        RevocableRecord(id="c", scope="", key="", state="", updated_at=0, payload=b"")
    )
    impatient = SqliteStore(store.path, caps=CAPS, timeout=0.05)
    with store.transaction(), pytest.raises(StoreError, match="locked"):
        impatient.evidence.put("p", "k", b"")
    impatient.evidence.put("p", "k", b"")
