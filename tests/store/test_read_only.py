"""Reading a store without writing: for another account, or on a read-only disk."""

from __future__ import annotations

import os
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from policyguard import Guard
from policyguard.store.errors import StoreError
from policyguard.store.protocol import Anchor, Caps
from policyguard.store.sqlite import log_files, schema, snapshot
from policyguard.store.sqlite.database import Database
from policyguard.store.sqlite.store import SqliteStore

CAPS = Caps(constraints=100, grants=100, evidence=100, anchors=100)
NOBODY = 65534
READ = """
import os, sys, urllib.parse
import policyguard.store.sqlite.snapshot  # while the interpreter's own folder can be read
from policyguard.store.errors import StoreError
from policyguard.store.sqlite.store import SqliteStore
path, uid = sys.argv[1:]
os.geteuid() or (os.setgroups([]), os.setgid(int(uid)), os.setuid(int(uid)))
try:
    store = SqliteStore(path, caps=None, read_only=True)
    print(*(anchor.session for anchor in store.anchors.all()))
    assert [anchor.session for anchor in store.anchors.all()] and store.anchors.get("a")
except StoreError as error:
    print(error)
"""


@pytest.fixture
def outside() -> Iterator[Path]:
    """A folder that other users can reach, unlike pytest's own."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        yield Path(folder)


def protect(folder: Path, mode: int = 0o555) -> None:
    """Let others read a folder and its files, and nobody write them."""
    for file in folder.rglob("*"):
        file.chmod(mode if file.is_dir() else mode & ~0o111)
    folder.chmod(mode)


def read_as_other_user(path: Path, temporary: Path) -> str:
    """Return what another user reads; check that nothing beside the store has changed."""
    files = {file: file.stat().st_mtime_ns for file in path.parent.iterdir()}
    temporary.mkdir(exist_ok=True)
    temporary.chmod(0o777)
    done = subprocess.run(
        [sys.executable, "-c", READ, str(path), str(NOBODY)],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
        env={**os.environ, "TMPDIR": str(temporary)},
    )
    assert done.returncode == 0, done.stderr
    assert {file: file.stat().st_mtime_ns for file in path.parent.iterdir()} == files
    assert list(temporary.iterdir()) == []
    return done.stdout.strip()


def put_anchors(store: SqliteStore, *names: str) -> None:
    for name in names:
        store.anchors.put(Anchor(name, "chain", 1, "hash", 1))


@pytest.mark.parametrize("state", ["closed", "open", "killed", "killed, index lost"])
def test_another_user_reads_a_store(outside: Path, state: str) -> None:
    path = outside / "state" / "store.db"
    store = SqliteStore(path, caps=CAPS)
    put_anchors(store, "a", "b")
    if state == "closed":
        store.close()
    elif state.startswith("killed"):  # what lies there at this moment
        read = outside / "copy" / "store.db"
        shutil.copytree(path.parent, read.parent)
        if state.endswith("lost"):
            read.with_name("store.db-shm").unlink()
        path = read
    protect(path.parent)
    assert path.with_name("store.db-wal").exists() == (state != "closed")
    assert read_as_other_user(path, outside / "tmp") == "a b"
    if state == "open":
        path.parent.chmod(0o700)
        put_anchors(store, "c")
        path.parent.chmod(0o555)
        assert read_as_other_user(path, outside / "tmp") == "a b c"


@pytest.mark.parametrize(
    ("folder_mode", "file_mode", "message"),
    [
        (0o555, 0o200, "cannot be copied in order to read it|cannot be opened"),
        (0o700, 0o444, "cannot be copied in order to read it|cannot be opened"),
    ],
    ids=["file", "folder"],
)
@pytest.mark.skipif(os.geteuid() != 0, reason="needs two users")
def test_what_another_user_must_not_read_is_an_error(
    outside: Path, folder_mode: int, file_mode: int, message: str
) -> None:
    path = outside / "state" / "store.db"
    store = SqliteStore(path, caps=CAPS)
    put_anchors(store, "a")
    store.close()
    path.chmod(file_mode)
    path.parent.chmod(folder_mode)
    output = read_as_other_user(path, outside / "tmp")
    assert output.startswith(f"{path}: ")
    assert "check that you can" in output
    assert any(part in output for part in message.split("|"))


@pytest.mark.parametrize("age", [0, 60])
def test_copy_of_a_store_that_is_written_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, age: int
) -> None:
    """However long ago (seconds) it was written when the copy is done."""
    store = SqliteStore(tmp_path / "store.db", caps=CAPS)
    put_anchors(store, "a")
    copyfile, checkpoints = shutil.copyfile, ["b", "c"]

    def copy_slowly(source: Path, target: Path) -> None:
        copyfile(source, target)
        if source == store.path and checkpoints:  # its log was copied before
            put_anchors(store, checkpoints.pop(0))
            store._database.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            written = time.time() - age
            os.utime(store.path, (written, written))

    monkeypatch.setattr(shutil, "copyfile", copy_slowly)
    with (
        snapshot.copied_database(store.path, 30) as copy,
        closing(sqlite3.connect(copy)) as database,
    ):
        rows = database.execute("SELECT session FROM anchors ORDER BY session")
        assert rows.fetchall() == [("a",), ("b",), ("c",)]
    assert not copy.parent.exists()
    checkpoints += map(str, range(1000))
    with (
        pytest.raises(StoreError, match="is being written all the time; try again later"),
        snapshot.copied_database(store.path, 0),
    ):
        pass


@pytest.mark.parametrize("suffix", ["", "-wal", "-shm"])
def test_file_that_is_read_only_is_named_before_sqlite_copies_its_mode(
    outside: Path, suffix: str
) -> None:
    path = outside / "state" / "store.db"
    holder = SqliteStore(path, caps=CAPS)
    put_anchors(holder, "a")
    if not suffix:
        holder.close()
    for file in (path.parent, *path.parent.iterdir()):
        os.geteuid() or os.chown(file, NOBODY, NOBODY)
    path.with_name(path.name + suffix).chmod(0o400)
    code = READ.replace("caps=None, read_only=True", "caps=None")
    done = subprocess.run(
        [sys.executable, "-c", code, str(path), str(NOBODY)],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    assert done.stdout.startswith(f"{path}{suffix}: is read-only; make it and its folder writable")
    if not suffix:
        assert not path.with_name("store.db-shm").exists()


POLICY = """
policyguard: 1
name: p
signatures: [{id: wrong, pattern: wrong, blame: agent}]
learn: {corroborate: 1, scope: project}
"""


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        (["journal", "verify"], "1 journal, 3 lines: nothing was altered"),
        (["journal", "anchors"], '"session":"run"'),
        (["constraints", "list"], "project shop"),
        (["constraints", "show", "ID"], "taught by   run/c1"),
        (["constraints", "explain", "ID"], "taught by   run/c1"),
        (["constraints", "export"], '"scope":"project:shop"'),
    ],
    ids=["verify", "anchors", "list", "show", "explain", "export"],
)
def test_commands_of_another_user_that_only_read(
    outside: Path, command: list[str], expected: str
) -> None:
    path, policy = outside / "state" / "store.db", outside / "policy.yaml"
    policy.write_text(POLICY)
    with Guard.load(policy, store=path) as guard:
        session = guard.session("run", project="shop")
        (learned,) = session.record(session.check("build", {"n": 1}), error="wrong").learned
    protect(path.parent)
    run = (
        "import os, sys, urllib.parse; from policyguard.cli import main, constraints, journal; "
        "import policyguard.store.sqlite.snapshot; "
        "os.geteuid() or (os.setgroups([]), os.setgid(65534), os.setuid(65534)); "
        "main(sys.argv[1:])"
    )
    words = [learned if word == "ID" else word for word in command]
    done = subprocess.run(
        [sys.executable, "-c", run, *words, "--store", str(path)],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    assert expected in done.stdout + done.stderr


def test_a_file_that_appears_meanwhile_is_not_read_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def is_writable(file: Path) -> bool:
        found = os.access(file, os.W_OK)
        file.touch()  # as another process does that opens the store
        return found

    monkeypatch.setattr(log_files, "is_writable", is_writable)
    log_files.require_writable(tmp_path / "store.db")


def test_a_store_that_is_locked_is_said_to_be_and_not_copied(tmp_path: Path) -> None:
    file = tmp_path / "store.db"
    store = SqliteStore(file, caps=CAPS)
    store.anchors.put(Anchor(session="a", chain="c", count=1, hash="h", size=1))
    store.close()
    with closing(sqlite3.connect(file, isolation_level=None)) as other:
        other.execute("PRAGMA locking_mode = EXCLUSIVE")
        other.execute("BEGIN IMMEDIATE")
        reader = Database(
            file,
            application_id=schema.APPLICATION_ID,
            migrations=schema.MIGRATIONS,
            timeout=0.05,
            read_only=True,
        )
        with pytest.raises(StoreError, match="lock"):
            reader.execute("SELECT * FROM anchors")
