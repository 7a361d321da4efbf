"""An unusable store raises an error with path, reason and remedy; each cause is a real one."""

from __future__ import annotations

import os
import sqlite3
import stat
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from policyguard import Guard
from policyguard.store import paths
from policyguard.store.errors import StoreError
from policyguard.store.protocol import Anchor, Caps, RevocableRecord
from policyguard.store.quota.protocol import QuotaKey, QuotaSpec
from policyguard.store.sqlite import commit_count
from policyguard.store.sqlite.database import Database
from policyguard.store.sqlite.schema import APPLICATION_ID, MIGRATIONS
from policyguard.store.sqlite.store import SqliteStore

CAPS = Caps(constraints=100, grants=100, evidence=100, anchors=100)


def fill(store: SqliteStore, kilobytes: int) -> None:
    for number in range(kilobytes):
        store.evidence.put("p", str(number), os.urandom(1024))


def limited(code: str, tmp_path: Path, *setup: str) -> str:
    """Return the output of a process without root rights, perhaps with limited resources."""
    script = "\n".join(
        (
            "import os, resource, sys, urllib.parse",
            "from pathlib import Path",
            "from policyguard.store.sqlite.store import SqliteStore",
            "from policyguard.store.errors import StoreError",
            "from policyguard.store.protocol import Caps",
            "caps = Caps(constraints=10**6, grants=10**6, evidence=10**6, anchors=10**6)",
            f"path = Path({str(tmp_path)!r}) / 'state' / 'store.db'",
            *setup,
            "try:",
            *(f"    {line}" for line in code.splitlines()),
            "except StoreError as error:",
            "    print(error)",
            "else:",
            "    print('no error')",
        )
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == 0, done.stderr
    assert "sqlite3" not in done.stdout + done.stderr
    return done.stdout


@pytest.fixture
def outside() -> Iterator[Path]:
    """A folder that other users can reach, unlike pytest's own."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        yield Path(folder)


DROP_ROOT = "os.geteuid() or (os.setgid(65534), os.setuid(65534))"


def test_file_and_folder_are_private(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        store = SqliteStore(tmp_path / "state" / "store.db", caps=CAPS)
        fill(store, 1)
        store.lock_session("s")
    finally:
        os.umask(before)
    modes = {file.name: stat.S_IMODE(file.stat().st_mode) for file in store.path.parent.iterdir()}
    names = {"store.db", "store.db-wal", "store.db-shm", "store.db.lock", "store.db.commits"}
    assert modes.keys() == names
    assert set(modes.values()) == {0o600}
    assert stat.S_IMODE(store.path.parent.stat().st_mode) == 0o700


def test_a_folder_writable_by_others_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "state"
    folder.mkdir()
    folder.chmod(0o770)
    with pytest.raises(StoreError, match=r"is writable by other users; run chmod go-w"):
        fill(SqliteStore(folder / "store.db", caps=CAPS), 1)


def test_the_default_is_the_state_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    assert paths.default_store_path() == tmp_path / "policyguard" / "store.db"
    assert paths.journal_folder(paths.default_store_path()) == tmp_path / "policyguard" / "journal"
    monkeypatch.setenv("XDG_STATE_HOME", "relative")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert paths.state_folder() == tmp_path / "home" / ".local" / "state" / "policyguard"
    monkeypatch.delenv("XDG_STATE_HOME")
    assert paths.state_folder() == tmp_path / "home" / ".local" / "state" / "policyguard"


def test_data_survives_reopening(tmp_path: Path) -> None:
    first = SqliteStore(tmp_path / "store.db", caps=CAPS)
    first.evidence.put("p", "k", b"1")
    key, version = first.fingerprint_key, first.constraints.version()
    first.close()
    assert first.evidence.get("p", "k") == b"1"  # reopens
    second = SqliteStore(tmp_path / "store.db", caps=CAPS)
    assert (second.fingerprint_key, second.evidence.get("p", "k")) == (key, b"1")
    assert second.constraints.version() == version


def test_a_large_transaction_leaves_no_large_log(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "store.db", caps=CAPS)
    log = store.path.with_name("store.db-wal")
    with store.transaction():
        for number in range(8):
            store.evidence.put("p", str(number), bytes(1 << 20))
    assert log.stat().st_size > 8 << 20
    store.evidence.put("p", "small", b"")
    assert log.stat().st_size == 4 << 20
    store.close()


@pytest.mark.parametrize(
    "content", [b"not a database" * 100, b"SQLite format 3\0" + b"\xff" * 4096]
)
def test_a_file_of_something_else(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "store.db"
    file.write_bytes(content)
    with pytest.raises(StoreError, match=r"store\.db: is damaged, or not a database.*move it away"):
        SqliteStore(file, caps=CAPS).fingerprint_key  # noqa: B018 - reading it opens the file
    assert file.read_bytes() == content


def test_a_database_that_was_damaged_later(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "store.db", caps=CAPS)
    fill(store, 50)
    store.close()
    size = store.path.stat().st_size
    with store.path.open("r+b") as file:
        for page in range(4096, size, 4096):
            file.seek(page)
            file.write(b"\xa5" * 2048)
    damaged = SqliteStore(store.path, caps=CAPS)
    with pytest.raises(StoreError, match="is damaged, or not a database"):
        fill(damaged, 50)


def test_a_database_of_another_program_is_left_alone(tmp_path: Path) -> None:
    file = tmp_path / "other.db"
    with closing(sqlite3.connect(file)) as other, other:
        other.execute("CREATE TABLE constraints (id)")
    other.close()
    with pytest.raises(StoreError, match="is not a policyguard store; use another file") as raised:
        fill(SqliteStore(file, caps=CAPS), 1)
    assert raised.value.path == file
    assert (raised.value.reason, raised.value.remedy) == (
        "is not a policyguard store",
        "use another file",
    )
    with closing(sqlite3.connect(file)) as other, other:
        assert other.execute("SELECT count(*) FROM sqlite_master").fetchone() == (1,)
    other.close()


@pytest.mark.parametrize("name", ["", ".", "/", "a\0b"])
def test_a_path_that_is_not_a_files(name: str) -> None:
    with pytest.raises(StoreError, match="is not a file path; name a file"):
        SqliteStore(name, caps=CAPS)


def test_a_tilde_is_the_users_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    with Guard.load("core", store="~/x.db") as guard:
        guard.session("s")
    assert {file.name for file in (tmp_path / "home").iterdir()} >= {"x.db", "journal"}
    assert [file.name for file in tmp_path.iterdir()] == ["home"]
    with pytest.raises(
        StoreError, match=r"~nobody-here/x\.db: unknown user in `~name`; use an absolute path"
    ):
        Guard.load("core", store="~nobody-here/x.db")


def test_memory_is_not_a_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(
        StoreError, match=":memory:: is not a file path; omit `store` to keep state in memory"
    ):
        Guard.load("core", store=":memory:")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("as_type", [str, Path])
@pytest.mark.parametrize("scheme", ["mysql", "postgresql+psycopg", "redis", "sqlite", "FILE"])
def test_an_address_is_not_a_path(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    scheme: str,
    as_type: Callable[[str], str | Path],
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("POLICYGUARD_CACHE", str(tmp_path / "cache"))
    address = as_type(f"{scheme}://bot:s3cret@db.example/guard")
    with pytest.raises(StoreError) as error:
        Guard.load("core", store=address)
    assert str(error.value) == (
        f"{scheme}:…: is an address, not a file path; "
        "name a file, or pass a store that you have opened"
    )
    assert "s3cret" not in repr(error.value) + str(vars(error.value))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["a:b", "c:/x", "here/x:/y"])
def test_a_path_with_a_colon_is_a_path(tmp_path: Path, name: str) -> None:
    assert paths.resolve_store_path(tmp_path / name) == tmp_path / name
    assert paths.resolve_store_path(name) == Path(name)


def test_a_folder_in_place_of_the_file(tmp_path: Path) -> None:
    (tmp_path / "store.db").mkdir()
    with pytest.raises(StoreError, match="is a folder; name a file"):
        fill(SqliteStore(tmp_path / "store.db", caps=CAPS), 1)


def test_a_file_in_place_of_the_folder(tmp_path: Path) -> None:
    (tmp_path / "state").write_text("")
    with pytest.raises(StoreError, match="is not a folder"):
        fill(SqliteStore(tmp_path / "state" / "store.db", caps=CAPS), 1)
    with pytest.raises(StoreError, match="is not a folder"):
        SqliteStore(tmp_path / "state" / "store.db", caps=CAPS).lock_session("s")


def test_a_missing_store_cannot_be_read(tmp_path: Path) -> None:
    reader = SqliteStore(tmp_path / "store.db", caps=None, read_only=True)
    with pytest.raises(
        StoreError, match="no store at this path; pass the path of one as `--store`"
    ):
        reader.constraints.list()
    assert not any(tmp_path.iterdir())


def test_an_empty_file_is_not_read_as_a_store(tmp_path: Path) -> None:
    file = tmp_path / "store.db"
    file.touch()
    reader = SqliteStore(file, caps=None, read_only=True)
    with pytest.raises(StoreError, match="is not a policyguard store; use another file"):
        reader.constraints.list()


def test_a_read_only_store_changes_nothing(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "store.db", caps=CAPS)
    store.anchors.put(Anchor("s", "c", 1, "h", 1))
    reader = SqliteStore(store.path, caps=None, read_only=True)
    assert [anchor.session for anchor in reader.anchors.all()] == ["s"]
    assert reader.constraints.changes(0).records == ()
    with pytest.raises(StoreError, match="is read-only"):
        reader.anchors.delete("s")


def test_a_store_locked_for_too_long(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "store.db", caps=CAPS, timeout=0.1)
    fill(store, 1)
    holder = sqlite3.connect(store.path, isolation_level=None)
    holder.execute("BEGIN IMMEDIATE")
    assert store.evidence.get("p", "0") is not None  # readers do not wait
    with pytest.raises(StoreError, match=r"locked by another process for 0\.1 s; .*or wait"):
        fill(store, 1)
    holder.execute("COMMIT")
    holder.close()
    fill(store, 1)


def busy_timeout(store: SqliteStore) -> int:
    """Return the milliseconds for which SQLite waits for others now."""
    return store._database.query_int("PRAGMA busy_timeout")


def test_a_store_known_to_be_locked_is_not_waited_for_again(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "store.db", caps=CAPS, timeout=0.5)
    fill(store, 1)
    assert busy_timeout(store) == 500
    holder = sqlite3.connect(store.path, isolation_level=None)
    holder.execute("BEGIN IMMEDIATE")
    with pytest.raises(StoreError, match=r"has been locked by another process for 0\.5 s"):
        fill(store, 1)
    assert busy_timeout(store) == 2
    assert store.evidence.get("p", "0") is not None  # readers prove nothing
    for action in (lambda: fill(store, 1), lambda: store.evidence.delete("p", "0")):
        with pytest.raises(StoreError, match=r"is still locked by another process; .*or wait"):
            action()
    store.close()
    assert busy_timeout(store) == 2  # a new connection does not wait either
    holder.close()
    fill(store, 1)
    assert busy_timeout(store) == 500


def test_a_new_file_that_another_process_is_creating(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    holder = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    holder.execute("BEGIN IMMEDIATE")
    done = threading.Timer(0.2, holder.execute, ["COMMIT"])
    done.start()
    fill(SqliteStore(path, caps=CAPS), 1)
    done.join()
    holder.close()


def test_a_new_file_that_another_process_does_not_release(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    with closing(sqlite3.connect(path, isolation_level=None)) as holder:
        holder.execute("BEGIN IMMEDIATE")
        with pytest.raises(StoreError, match=r"has been locked by another process for 0\.1 s"):
            fill(SqliteStore(path, caps=CAPS, timeout=0.1), 1)


class Watched(Database):
    """Calls `before` with each statement on a new connection."""

    before: Callable[[str], None]

    def _new_connection(self, path: Path) -> sqlite3.Connection:
        connection = super()._new_connection(path)
        connection.set_trace_callback(self.before)
        return connection


@pytest.mark.parametrize("statement_part", ["application_id", "user_version", "sqlite_master"])
def test_a_new_file_whose_tables_another_process_creates_between_two_reads(
    tmp_path: Path, statement_part: str
) -> None:
    path = tmp_path / "new.db"
    other = Database(path, application_id=7, migrations=[("CREATE TABLE t (a)",)], timeout=5.0)
    database = Watched(path, application_id=7, migrations=[("CREATE TABLE t (a)",)], timeout=5.0)

    def interfere(statement: str) -> None:
        if statement_part in statement:
            other.execute("SELECT 1")

    database.before = interfere
    assert database.execute("SELECT count(*) FROM t") == [(0,)]


def test_a_newer_version_is_not_written_to(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "store.db", caps=CAPS)
    fill(store, 1)
    store.close()
    with closing(sqlite3.connect(store.path)) as newer, newer:
        newer.execute(f"PRAGMA user_version = {len(MIGRATIONS) + 1}")
    newer.close()
    with pytest.raises(StoreError, match=r"newer policyguard .*; update policyguard"):
        fill(SqliteStore(store.path, caps=CAPS), 1)


def database(path: Path, migrations: tuple[tuple[str, ...], ...], **more: bool) -> Database:
    return Database(path, application_id=APPLICATION_ID, migrations=migrations, timeout=1, **more)


def test_migrations_run_step_by_step(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    one, two = ("CREATE TABLE a (x)",), ("ALTER TABLE a ADD y", "UPDATE a SET y = x + 1")
    first = database(path, (one,))
    first.execute("INSERT INTO a VALUES (1)")
    first.close()
    with pytest.raises(StoreError, match="has an older schema; open it once"):
        database(path, (one, two), read_only=True).execute("SELECT y FROM a")
    second = database(path, (one, two))
    assert second.execute("SELECT x, y FROM a") == [(1, 2)]
    second.close()
    assert database(path, (one, two), read_only=True).execute("SELECT y FROM a") == [(2,)]


def test_a_failed_migration_changes_nothing(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    database(path, (("CREATE TABLE a (x)",),)).execute("INSERT INTO a VALUES (1)")
    broken = ("ALTER TABLE a ADD y", "CREATE TABLE a (z)")
    with pytest.raises(StoreError, match="cannot be used"):
        database(path, (("CREATE TABLE a (x)",), broken)).execute("SELECT 1")
    assert database(path, (("CREATE TABLE a (x)",),)).execute("SELECT * FROM a") == [(1,)]


def test_a_full_disk(tmp_path: Path) -> None:
    output = limited(
        "store = SqliteStore(path, caps=caps)\n"
        "for number in range(4000): store.evidence.put('p', str(number), b'x' * 1024)",
        tmp_path,
        "resource.setrlimit(resource.RLIMIT_FSIZE, (400_000, 400_000))",
    )
    assert "state/store.db: the disk f" in output


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can mount a disk")
def test_a_disk_without_room(tmp_path: Path) -> None:
    script = (
        f"mount -t tmpfs -o size=256k tmpfs {tmp_path} && exec {sys.executable} -c '"
        "from pathlib import Path\n"
        "from policyguard.store.sqlite.store import SqliteStore\n"
        "from policyguard.store.errors import StoreError\n"
        "from policyguard.store.protocol import Caps\n"
        "caps = Caps(constraints=10**6, grants=10**6, evidence=10**6, anchors=10**6)\n"
        f'store = SqliteStore(Path("{tmp_path}") / "state" / "store.db", caps=caps)\n'
        "written = 0\n"
        "try:\n"
        "    while True:\n"
        '        store.evidence.put("p", str(written), b"x" * 1024)\n'
        "        written += 1\n"
        "except StoreError as error:\n"
        "    print(error)\n"
        "store.close()\n"
        "print(written, len(SqliteStore(store.path, caps=None, read_only=True).evidence.list()))'"
    )
    done = subprocess.run(
        ["unshare", "-m", "sh", "-c", script], capture_output=True, text=True, check=False
    )
    if "mount" in done.stderr or "unshare" in done.stderr:
        pytest.skip("cannot mount a disk here")
    assert "the disk is full (database or disk is full); make room" in done.stdout, done.stderr
    written, found = done.stdout.splitlines()[-1].split()
    assert written == found != "0"


def test_a_folder_without_permission(outside: Path) -> None:
    (outside / "state").mkdir(mode=0o500)
    if os.geteuid() == 0:
        os.chown(outside / "state", 65534, 65534)
    output = limited("SqliteStore(path, caps=caps).fingerprint_key", outside, DROP_ROOT)
    assert "store.db: cannot be created: Permission denied; use a path" in output


def test_a_file_that_may_only_be_read(outside: Path) -> None:
    store = SqliteStore(outside / "state" / "store.db", caps=CAPS)
    fill(store, 1)
    store.close()
    store.path.chmod(0o400)
    if os.geteuid() == 0:
        for file in (store.path.parent, *store.path.parent.iterdir()):
            os.chown(file, 65534, 65534)
    code = "SqliteStore(path, caps=caps).evidence.put('p', 'k', b'')"
    output = limited(code, outside, DROP_ROOT)
    assert "store.db: is read-only" in output


def test_a_file_that_may_not_be_read(outside: Path) -> None:
    store = SqliteStore(outside / "state" / "store.db", caps=CAPS)
    fill(store, 1)
    store.close()
    store.path.chmod(0o200)
    if os.geteuid() == 0:
        for file in (store.path.parent, *store.path.parent.iterdir()):
            os.chown(file, 65534, 65534)
    code = "SqliteStore(path, caps=caps).evidence.put('p', 'k', b'')"
    output = limited(code, outside, DROP_ROOT)
    assert "store.db: cannot be opened (" in output
    assert "check that you can read and write it" in output


def test_an_error_after_the_file_is_gone_keeps_its_reason(tmp_path: Path) -> None:
    opened = database(tmp_path / "store.db", (("CREATE TABLE a (x)",),))
    with opened.transaction():
        opened.path.unlink()
        with pytest.raises(StoreError, match="no such column: y"):
            opened.execute("SELECT y FROM a")


def test_a_folder_of_another_user(outside: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can give a folder away")
    (outside / "state").mkdir(mode=0o755)
    output = limited("SqliteStore(path, caps=caps).fingerprint_key", outside, DROP_ROOT)
    assert "state: belongs to another user; use a folder of your own" in output


def test_a_value_that_is_too_large(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "store.db", caps=CAPS)
    record = RevocableRecord(id="a", scope="", key="", state="", updated_at=2**70, payload=b"")
    with pytest.raises(StoreError, match="too large"):
        store.constraints.put(record)
    assert store.constraints.list() == ()


def _removed(path: Path) -> None:
    for file in path.parent.iterdir():
        file.unlink()


def _replaced(path: Path) -> None:
    _removed(path)
    SqliteStore(path, caps=CAPS).evidence.put("p", "k", b"another's")


@pytest.mark.parametrize("act", [_removed, _replaced])
def test_a_file_that_is_removed_or_replaced_while_it_is_in_use(
    tmp_path: Path, act: Callable[[Path], None]
) -> None:
    store = SqliteStore(tmp_path / "state" / "store.db", caps=CAPS)
    quota = store.quotas.open(QuotaKey("b", "k", "k"), QuotaSpec(limit=10))
    for _ in range(2):
        assert store.quotas.try_charge_all([(quota, 1)], 1)
    act(store.path)
    message = r"store\.db: is (gone|another file now).* while it was in use; put it back"
    for use in (
        store.constraints.version,
        lambda: store.evidence.put("p", "k", b""),
        lambda: store.quotas.try_charge_all([(quota, 10)], 1),
        lambda: store.quotas.refresh([quota], 1),
        store.close,  # the lease cannot be saved
    ):
        with pytest.raises(StoreError, match=message):
            use()
    store.evidence.put("p", "k", b"")  # closed, and reopened with the new file


def test_a_file_that_is_moved_away_and_put_back(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "store.db", caps=CAPS)
    store.evidence.put("p", "k", b"1")
    away = store.path.rename(tmp_path / "away.db")
    with pytest.raises(StoreError, match="is gone"):
        store.evidence.get("p", "k")
    away.rename(store.path)
    assert store.evidence.get("p", "k") == b"1"


def test_a_guard_notices_within_a_second(tmp_path: Path) -> None:
    guard = Guard.load("core", store=tmp_path / "state" / "store.db")
    session = guard.session("s")
    assert session.check("read", {"n": 0}).allowed
    (tmp_path / "state" / "store.db").unlink()
    until = time.monotonic() + 1.1
    while (decision := session.check("read", {"n": time.monotonic()})).allowed:
        assert time.monotonic() < until
        time.sleep(0.05)
    assert "removed or replaced while it was in use" in decision.errors[0].error


@pytest.mark.parametrize(
    ("suffix", "read_only"), [("", False), ("", True), (".lock", False), (".purses", False)]
)
def test_a_pipe_in_place_of_a_file(tmp_path: Path, suffix: str, read_only: bool) -> None:
    path = tmp_path / "store.db"
    os.mkfifo(path.with_name(path.name + suffix))
    store = SqliteStore(path, caps=CAPS, read_only=read_only)
    quota = store.quotas.open(QuotaKey("b", "k", "k"), QuotaSpec(limit=10))

    def use() -> None:
        store.constraints.version()
        store.lock_session("s")
        for _ in range(2):
            store.quotas.try_charge_all([(quota, 1)], 1)

    with pytest.raises(
        StoreError, match=rf"store\.db{suffix}: is not a regular file; move it away"
    ):
        use()


def run_elsewhere(path: Path, code: str) -> str:
    """Use the store in another process: in one process, connections share their files."""
    done = subprocess.run(
        [sys.executable, "-c", f"{ELSEWHERE}{code}", str(path)],
        capture_output=True,
        text=True,
        check=False,
    )
    return done.stdout + "".join(done.stderr.rpartition("StoreError")[1:])


ELSEWHERE = """
import sys
from pathlib import Path
from policyguard.store.sqlite.store import SqliteStore
from policyguard.store.protocol import Caps
caps = Caps(constraints=9, grants=9, evidence=9, anchors=9)
store = SqliteStore(Path(sys.argv[1]), caps=caps)
"""
KEYS = "print(*(key for _, key, _ in store.evidence.list()))\n"


def test_a_log_that_is_removed_in_use_loses_nothing(tmp_path: Path) -> None:
    """Not what was written since, nor what other processes write."""
    path = tmp_path / "store.db"
    writer = SqliteStore(path, caps=CAPS)
    writer.evidence.put("s", "before", b"1")
    path.with_name("store.db-wal").unlink()
    refused = run_elsewhere(path, KEYS)  # SQLite has an index without its log
    assert "was removed while another process has it open" in refused
    writer.evidence.put("s", "after", b"2")
    put = "store.evidence.put('s', 'other', b'3')\n"
    assert run_elsewhere(path, put + KEYS) == "after before other\n"
    assert len(writer.evidence.list()) == 3
    writer.close()
    assert run_elsewhere(path, KEYS) == "after before other\n"


@pytest.mark.parametrize("suffixes", [("-wal",), ("-shm",), ("-wal", "-shm")])
@pytest.mark.parametrize("is_used", [False, True])
def test_files_beside_a_store_that_are_removed_in_use_lose_nothing(
    tmp_path: Path, suffixes: tuple[str, ...], *, is_used: bool
) -> None:
    path = tmp_path / "store.db"
    writer = SqliteStore(path, caps=CAPS)
    writer.evidence.put("s", "before", b"1")
    for suffix in suffixes:
        path.with_name(f"store.db{suffix}").unlink()
    if is_used:
        writer.evidence.put("s", "after", b"2")
    writer.close()
    assert run_elsewhere(path, KEYS) == ("after before\n" if is_used else "before\n")


@pytest.mark.parametrize("is_copied", [False, True])
def test_a_process_that_is_refused_leaves_a_removed_log_to_the_one_that_has_it(
    tmp_path: Path, *, is_copied: bool
) -> None:
    """It writes nothing, not even the tables that a new file lacks."""
    path = tmp_path / "store.db"
    if is_copied:  # the tables are no longer in the log only
        with closing(SqliteStore(path, caps=CAPS)) as store:
            store.evidence.list()
    writer = SqliteStore(path, caps=CAPS)
    writer.evidence.put("s", "before", b"1")
    for suffix in ("-wal", "-shm"):
        path.with_name(f"store.db{suffix}").unlink()
    refused = run_elsewhere(path, KEYS)
    assert "end programs that have it open in order, which may save the log" in refused
    writer.close()
    assert run_elsewhere(path, KEYS) == "before\n"


def test_a_log_that_is_replaced_in_use_is_said(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    writer = SqliteStore(path, caps=CAPS)
    writer.evidence.put("s", "before", b"1")
    for suffix in ("-wal", "-shm"):
        path.with_name(f"store.db{suffix}").unlink()
    path.with_name("store.db.commits").unlink()  # or it would be refused
    run_elsewhere(path, "store.evidence.put('s', 'other', b'3'); import os; os._exit(0)")
    with pytest.raises(StoreError, match="was replaced while it was in use"):
        writer.evidence.put("s", "after", b"2")
    writer.evidence.put("s", "after", b"2")
    writer.close()
    assert run_elsewhere(path, KEYS).split()[0] == "after"


def test_a_log_that_is_removed_at_rest_is_noticed(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    put = "store.evidence.put('s', 'k', b'3')\n"
    run_elsewhere(path, f"{put}store.close()\n{put}{put}import os; os._exit(0)")
    path.with_name("store.db-wal").unlink()
    store = SqliteStore(path, caps=CAPS)
    with pytest.raises(
        StoreError, match=r"last transactions are missing \(2\).*store\.db\.commits"
    ):
        store.evidence.list()
    path.with_name("store.db.commits").unlink()
    assert [key for _, key, _ in store.evidence.list()] == ["k"]
    store.close()


def test_an_older_copy_of_a_store_is_noticed(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    with closing(SqliteStore(path, caps=CAPS)) as store:
        store.evidence.put("s", "a", b"1")
    copy = path.read_bytes()
    with closing(SqliteStore(path, caps=CAPS)) as store:
        store.evidence.put("s", "b", b"1")
    path.write_bytes(copy)
    with pytest.raises(StoreError, match="or the file was replaced by an older one"):
        SqliteStore(path, caps=CAPS).evidence.list()


def test_a_store_of_an_earlier_boot_may_be_older(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a power loss the last transactions may be lost, unless each was synced."""
    path = tmp_path / "store.db"
    with closing(SqliteStore(path, caps=CAPS)) as store:
        store.evidence.put("s", "a", b"1")
    copy = path.read_bytes()
    with closing(SqliteStore(path, caps=CAPS)) as store:
        store.evidence.put("s", "b", b"1")
    path.write_bytes(copy)
    monkeypatch.setattr(commit_count, "_boot_digest", lambda: b"another boot")
    with closing(SqliteStore(path, caps=CAPS)) as store:
        assert [key for _, key, _ in store.evidence.list()] == ["a"]


def test_a_read_does_not_show_that_the_lock_is_gone(tmp_path: Path) -> None:
    """Until a write succeeds, the next one waits only briefly."""
    store = SqliteStore(tmp_path / "store.db", caps=CAPS, timeout=0.05)
    fill(store, 1)
    other = SqliteStore(tmp_path / "store.db", caps=CAPS)
    with other.transaction():
        with pytest.raises(StoreError, match="locked"):
            fill(store, 1)
        with store._database.transaction(write=False):
            pass
        assert store._database._is_locked
    fill(store, 1)
    assert not store._database._is_locked
