"""A store is copied into one of the same or another kind, and all goes on there."""

from __future__ import annotations

import signal
import sqlite3
import subprocess
import sys
import time
import zlib
from pathlib import Path

import pytest
from click.testing import CliRunner

from policyguard import AlteredError, Guard, Session
from policyguard.cli import main
from policyguard.evaluator.budgets.usage import BudgetUsage
from policyguard.store.copying import StoreContent, copy_store, open_transfer, read_content
from policyguard.store.errors import StoreError
from policyguard.store.opening import open_named_store
from policyguard.store.paths import find_journal_folder
from policyguard.store.protocol import Anchor, BudgetReset, Caps, RevocableRecord, Store
from policyguard.store.quota.protocol import QuotaKey, QuotaSpec
from policyguard.store.quota.stored_usage import decode_usage, encode_usage
from policyguard.store.sqlite import schema
from policyguard.store.sqlite.database import Database
from tests.examples import slow_but
from tests.store.postgres_server import Server, postgres

__all__ = ["postgres"]

POLICY = """
policyguard: 1
name: moved
budgets:
  calls: {calls: 5, per: global}
  mails: {tools: [mail], calls: 3, per: project, within: 1h}
learn: {corroborate: 1, scope: project}
marks:
  read: {key: call.args.path, set: {tools: [read]}, per: project}
rules:
  edit: {tools: [edit], unless: call.args.path in mark.read}
signatures:
  - id: missing
    pattern: no such key
    blame: agent
    examples: {match: [no such key], no_match: [x]}
"""


@pytest.fixture
def policy(tmp_path: Path) -> str:
    path = tmp_path / "policy.yaml"
    path.write_text(POLICY)
    return str(path)


@pytest.fixture(params=["file", "database"])
def other(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A new store in another place."""
    if request.param == "file":
        return str(tmp_path / "other" / "store.db")
    server: Server = request.getfixturevalue("postgres")
    return server.new_address()


def _run(*arguments: object) -> tuple[int, str]:
    result = CliRunner().invoke(main, [str(one) for one in arguments])
    return result.exit_code, result.output


def _fill(policy: str, store: str) -> None:
    """Use two of five calls and one of three mails, and learn that one fails."""
    with Guard.load(policy, store=store) as guard:
        with guard.session("one", project="p") as session:
            session.record(session.check("mail", {"to": "ann"}), result="sent")
            session.record(session.check("find", {"key": "k"}), error="no such key")
            session.mark("read", "/a")
        opened = open_named_store(store, caps=None)
        for number in range(3):
            record = RevocableRecord(
                id=f"k{number:012d}",
                scope="s",
                key="k",
                state="active",
                updated_at=1,
                payload=b"\x90",
            )
            assert opened.constraints.put(record)
        opened.constraints.revoke("k000000000001", by="bob", at=5)
        opened.constraints.delete("k000000000002")
        opened.constraints.delete("k000000000000")
        opened.evidence.put("scope", "key \0", b"\x90")
        opened.close()


def _content(store: str) -> StoreContent:
    opened = open_named_store(store, caps=None)
    transfer = open_transfer(opened)
    with transfer.snapshot():
        content = read_content(opened, transfer)
    opened.close()
    return content


def _goes_on(policy: str, store: str) -> None:
    """Check that what was used, learned and revoked still is."""
    with Guard.load(policy, store=store) as guard, guard.session("one", project="p") as session:
        assert not session.check("find", {"key": "k"})  # learned
        assert session.preview("edit", {"path": "/a"})
        assert not session.preview("edit", {"path": "/b"})
        assert [bool(session.check("mail", {"n": n})) for n in range(3)] == [True, True, False]
        assert [bool(session.check("other", {"n": n})) for n in range(2)] == [True, False]
    opened = open_named_store(store, caps=None)
    revoked = opened.constraints.get("k000000000001")
    assert revoked is not None
    assert (revoked.state, revoked.revoked_by) == ("revoked", "bob")
    opened.close()


def test_each_snapshot_is_of_one_moment(other: str) -> None:
    reader, writer = (open_named_store(other, caps=None) for _ in range(2))
    transfer = open_transfer(reader)
    for number in range(2):
        with transfer.snapshot():
            before = reader.evidence.list()
            writer.evidence.put("scope", f"key {number}", b"\x90")
            assert reader.evidence.list() == before
    assert len(reader.evidence.list()) == 2
    for store in (reader, writer):
        store.close()


def test_all_goes_on_in_a_copy(tmp_path: Path, policy: str, other: str) -> None:
    store = str(tmp_path / "store.db")
    _fill(policy, store)
    assert _run("journal", "verify", "--store", store)[0] == 0
    code, output = _run("store", "copy", store, other)
    assert code == 0, output
    assert "compared" in output
    assert "  journals     1 in " in output
    assert "no journal here" not in output
    assert _run("journal", "verify", "--store", other)[0] == 0
    back = str(tmp_path / "back" / "store.db")
    code, output = _run("store", "copy", other, back)
    assert code == 0, output
    assert _content(back) == _content(store)
    _goes_on(policy, other)
    _goes_on(policy, back)
    assert _run("journal", "verify", "--store", other)[0] == 0
    assert _run("journal", "verify", "--store", back)[0] == 0


def test_a_database_is_copied_into_another(tmp_path: Path, policy: str, postgres: Server) -> None:
    first, second = postgres.new_address(), postgres.new_address()
    _fill(policy, first)
    code, output = _run("store", "copy", first, second)
    assert code == 0, output
    assert "  journals     1 in " in output
    assert "no journal here" not in output
    assert _content(second) == _content(first)
    opened = [open_named_store(one, caps=None) for one in (first, second)]
    lines = [b"".join(one.anchors.lines("one")) for one in opened]  # type: ignore[attr-defined]  # of databases
    assert lines[0] == lines[1] != b""
    for one in opened:
        one.close()
    _goes_on(policy, second)


def test_lines_that_were_put_aside_are_copied_and_no_other_file(
    tmp_path: Path, policy: str
) -> None:
    store, other = tmp_path / "store.db", tmp_path / "other" / "store.db"
    _fill(policy, str(store))
    (file,) = (tmp_path / "journal").glob("one-*.jsonl")
    aside = file.with_name(f"{file.name}.3.aside")
    aside.write_bytes(b"".join(file.read_bytes().splitlines(keepends=True)[:4]))
    file.with_name("notes.txt").touch()
    code, output = _run("store", "copy", store, other)
    assert code == 0, output
    copied = {one.name: one.read_bytes() for one in (other.parent / "journal").iterdir()}
    assert copied == {one.name: one.read_bytes() for one in (file, aside)}


def test_what_was_cleared_before_a_copy_is_set_in_it(tmp_path: Path, other: str) -> None:
    store, policy = str(tmp_path / "store.db"), tmp_path / "marks.yaml"
    policy.write_text(
        "policyguard: 1\nname: marks\nmarks:\n"
        "  tested: {set: {tools: [test]}, clear: {tools: [edit]}, per: project}\n"
        "rules: {ship: {tools: [ship], unless: mark.tested}}\n"
    )
    with Guard.load(policy, store=store) as guard, guard.session("one", project="p") as session:
        for tool in ("edit", "test", "edit"):
            session.record(session.check(tool, {}), result="done")
    assert _run("store", "copy", store, other)[0] == 0
    with Guard.load(policy, store=other) as guard, guard.session("two", project="p") as session:
        assert not session.check("ship", {})
        session.record(session.check("test", {}), result="done")
        assert session.check("ship", {})


def test_tampering_with_a_copy_is_found(tmp_path: Path, policy: str) -> None:
    store, other = tmp_path / "store.db", tmp_path / "other" / "store.db"
    _fill(policy, str(store))
    assert _run("store", "copy", store, other)[0] == 0
    assert _run("journal", "verify", "--store", other)[0] == 0
    with sqlite3.connect(other) as connection:
        connection.execute("DELETE FROM purses")
    assert _run("journal", "verify", "--store", other)[0] == 1


@pytest.mark.parametrize(
    ("statement", "table"),
    [
        ("DELETE FROM purses", "purses"),
        ("UPDATE constraints SET state = 'active', revoked_by = ''", "constraints"),
        ("DELETE FROM notes", "notes"),
    ],
)
def test_a_copy_hides_no_tampering(
    tmp_path: Path, policy: str, other: str, statement: str, table: str
) -> None:
    store = str(tmp_path / "store.db")
    _fill(policy, store)
    opened = open_named_store(store, caps=None)
    opened.anchors.add_note(BudgetReset("budget", "", 1, "ann", 1))
    opened.close()
    with sqlite3.connect(store) as connection:
        assert connection.execute(statement).rowcount
    code, output = _run("store", "copy", store, other)
    assert code == 2
    assert f"changed rows of `{table}`" in output
    opened = open_named_store(other, caps=None)
    assert open_transfer(opened).is_new()
    opened.close()
    assert _run("journal", "verify", "--store", store)[0] == 1


def test_a_store_of_an_older_version_is_copied(tmp_path: Path, other: str) -> None:
    store = str(tmp_path / "store.db")
    old = Database(
        Path(store),
        application_id=schema.APPLICATION_ID,
        migrations=schema.MIGRATIONS[:2],
        timeout=5.0,
    )
    old.execute("INSERT INTO meta (name, value) VALUES ('key', ?)", (b"k" * 32,))
    old.execute("INSERT INTO anchors VALUES ('one', 'c', 3, 'h', 9, 1)")
    row = "p/budgets/b: calls per global", "", encode_usage(BudgetUsage()), None
    old.execute("INSERT INTO purses VALUES (?, ?, ?, ?)", row)
    old.close()
    code, output = _run("store", "copy", store, other)
    assert code == 0, output
    content = _content(other)
    assert content.fingerprint_key == b"k" * 32
    assert [(one.session, one.count, one.at) for one in content.anchors] == [("one", 3, None)]
    assert [one.budget for one in content.usages] == ["p/budgets/b: calls per global"]


def test_a_guard_that_begins_meanwhile_is_noticed(tmp_path: Path, policy: str, other: str) -> None:
    store = str(tmp_path / "store.db")
    _fill(policy, store)
    quiet = tmp_path / "quiet.yaml"
    quiet.write_text("policyguard: 1\nname: quiet\n")
    source, target = (open_named_store(one, caps=None) for one in (store, other))
    late: list[Session] = []
    with Guard.load(quiet, store=store) as guard:

        def begin(_: QuotaKey) -> QuotaSpec:  # asked for while dead guards' leases are settled
            if not late:
                late.append(guard.session("late"))
            return QuotaSpec(limit=0, within=None)

        with pytest.raises(StoreError, match="is in use"):
            copy_store(source, target, begin, time.time_ns())
        assert open_transfer(target).is_new()
    source.close()
    target.close()


def test_a_store_is_not_copied_into_itself(tmp_path: Path, postgres: Server) -> None:
    (tmp_path / "link.db").symlink_to(tmp_path / "store.db")
    address = postgres.new_address()
    for store, same in ((tmp_path / "store.db", tmp_path / "link.db"), (address, address)):
        assert _run("store", "migrate", "--store", store)[0] == 0
        code, output = _run("store", "copy", store, same)
        assert code == 2
        assert "is the store to copy" in output


@pytest.mark.parametrize("other", slow_but({"file"}, ["file", "database"]), indirect=True)
def test_a_store_in_use_is_not_copied(tmp_path: Path, policy: str, other: str) -> None:
    store = str(tmp_path / "store.db")
    command = [sys.executable, "-c", HOLDER, policy, store]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "open\n"
        code, output = _run("store", "copy", store, other)
        holder.kill()
    assert code == 2
    assert "is in use" in output
    code, output = _run("store", "copy", store, other)  # what the dead has used is counted
    assert code == 0, output
    with Guard.load(policy, store=other) as guard, guard.session("two") as session:
        assert [bool(session.check("x", {"n": n})) for n in range(4)] == [True] * 3 + [False]


HOLDER = """
import sys, time
from policyguard import Guard
guard = Guard.load(sys.argv[1], store=sys.argv[2])
session = guard.session("one")
for n in range(2):
    session.record(session.check("x", {"n": n}), result="y")
print("open", flush=True)
time.sleep(60)
"""


@pytest.mark.parametrize("other", slow_but({"database"}, ["file", "database"]), indirect=True)
def test_what_the_dead_have_used_of_a_window_leaves_it(
    tmp_path: Path, policy: str, other: str
) -> None:
    Path(policy).write_text(POLICY.replace("calls: 3", "calls: 300"))
    store = str(tmp_path / "store.db")
    mails = HOLDER.replace('"x"', '"mail"').replace('"one"', '"one", project="p"')
    with subprocess.Popen(
        [sys.executable, "-c", mails, policy, store], stdout=subprocess.PIPE, text=True
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "open\n"
        holder.kill()
    code, output = _run("store", "copy", store, other)
    assert code == 0, output
    (found,) = (one for one in _content(other).usages if "/mails" in one.budget)
    usage = decode_usage(Path(store), found.usage)
    assert usage.latest_at is not None
    assert found.until == usage.latest_at + 3600 * 10**9


def test_a_target_that_holds_something_is_refused(tmp_path: Path, policy: str, other: str) -> None:
    store = str(tmp_path / "store.db")
    _fill(policy, store)
    _fill(policy, other)
    before = _content(other)
    code, output = _run("store", "copy", store, other)
    assert code == 2
    assert "holds something already" in output
    assert _content(other) == before


def _put_piece(store: Store, piece: str) -> None:
    match piece:
        case "anchors":
            store.anchors.put(Anchor(session="s", chain="c", count=1, hash="h", size=1))
        case "notes":
            store.anchors.add_note(BudgetReset(budget="b", key="p", used=3, by="ann", at=1))
        case "constraints" | "grants" | "marks":
            record = RevocableRecord(
                id="a", scope="s", key="k", state="active", updated_at=1, payload=b"\x90"
            )
            assert getattr(store, piece).put(record)
        case "evidence":
            store.evidence.put("scope", "key", b"\x90")
        case "usage":
            store.quotas.grant(QuotaKey("b", "p", "p"), 1)


@pytest.mark.parametrize(
    "piece", ["anchors", "notes", "constraints", "grants", "marks", "evidence", "usage"]
)
def test_a_target_with_one_piece_of_anything_is_refused(
    tmp_path: Path, policy: str, other: str, piece: str
) -> None:
    store = str(tmp_path / "store.db")
    _fill(policy, store)
    opened = open_named_store(other, caps=None)
    _put_piece(opened, piece)
    opened.close()
    code, output = _run("store", "copy", store, other)
    assert (code, "holds something already" in output) == (2, True)


def test_notes_and_the_number_of_evicted_anchors_are_copied(tmp_path: Path, other: str) -> None:
    store = str(tmp_path / "store.db")
    opened = open_named_store(store, caps=Caps(constraints=1, grants=1, evidence=1, anchors=2))
    for number in range(5):
        session = f"s{number}"
        opened.anchors.put(Anchor(session=session, chain="c", count=1, hash="h", size=1))
        opened.anchors.add_note(BudgetReset(budget="b", key="p", used=3, by="ann", at=number))
    opened.close()
    before = _content(store)
    assert (before.evicted_anchors, [note.at for note in before.notes]) == (3, [3, 4])
    back = str(tmp_path / "back" / "store.db")
    for source, target in ((store, other), (other, back)):
        code, output = _run("store", "copy", source, target)
        assert code == 0, output
        assert _content(target) == before


def test_a_copy_that_is_killed_leaves_nothing(
    tmp_path: Path, policy: str, other: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = str(tmp_path / "store.db")
    _fill(policy, store)
    killed = subprocess.run(
        [sys.executable, "-c", KILLED, store, other], capture_output=True, text=True, check=False
    )
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    code, output = _run("store", "copy", store, other)
    assert code == 0, output
    _goes_on(policy, other)


KILLED = """
import os, signal, sys
from policyguard.cli import main
from policyguard.evaluator.budgets.usage import BudgetUsage
from policyguard.store import copying
write = copying._write_content
def write_and_die(*arguments):
    write(*arguments)
    os.kill(os.getpid(), signal.SIGKILL)
copying._write_content = write_and_die
main(["store", "copy", sys.argv[1], sys.argv[2]])
"""


def test_leases_that_ran_out_are_counted(tmp_path: Path, policy: str, postgres: Server) -> None:
    import psycopg

    source = postgres.new_address()
    with Guard.load(policy, store=source) as guard, guard.session("one") as session:
        session.record(session.check("x", {}), result="y")
    with psycopg.connect(source, autocommit=True) as connection:
        connection.execute(
            "INSERT INTO leases (budget, key, amount, expires) SELECT budget, key, 2000000000, "
            "clock_timestamp() + interval '1 h' FROM quotas"
        )
        ((leases,),) = connection.execute("SELECT count(*) FROM leases").fetchall()
    assert leases
    target = str(tmp_path / "store.db")
    code, output = _run("store", "copy", source, target)
    assert code == 2
    assert "leases" in output
    with psycopg.connect(source, autocommit=True) as connection:
        connection.execute("UPDATE leases SET expires = clock_timestamp()")
    code, output = _run("store", "copy", source, target)
    assert code == 0, output
    with Guard.load(policy, store=target) as guard, guard.session("two") as session:
        assert [bool(session.check("x", {"n": n})) for n in range(3)] == [True, True, False]


def test_no_source_is_made(tmp_path: Path) -> None:
    code, output = _run("store", "copy", tmp_path / "none.db", tmp_path / "other.db")
    assert code == 2
    assert "no store at" in output
    assert not (tmp_path / "none.db").exists()


def test_a_database_is_named_without_its_password(tmp_path: Path) -> None:
    address = "postgresql://me:secret@127.0.0.1:1/guards"
    (tmp_path / "store.db").touch()
    for pair in ((address, tmp_path / "x.db"), (tmp_path / "store.db", address)):
        code, output = _run("store", "copy", *pair)
        assert code == 2
        assert "secret" not in output


def test_any_host_goes_on_with_what_began_in_a_file(
    tmp_path: Path, policy: str, postgres: Server
) -> None:
    store, target = str(tmp_path / "store.db"), postgres.new_address()
    _fill(policy, store)
    with Guard.load(policy, store=store) as guard, guard.session("long") as session:
        for _ in range(2_000):  # more than one piece
            session.turn()
    code, output = _run("store", "copy", store, target)
    assert code == 0, output
    opened = open_named_store(target, caps=None)
    pieces = [*opened.anchors.lines("long")]  # type: ignore[attr-defined]  # of a database
    opened.close()
    (file,) = (tmp_path / "journal").glob("long-*.jsonl")
    assert b"".join(pieces) == file.read_bytes()
    assert max(map(len, pieces)) == 256 * 1024, "no row is larger"
    elsewhere = tmp_path / "elsewhere"
    with (
        Guard.load(policy, store=target, journal=elsewhere) as guard,
        guard.session("one", project="p") as session,
    ):
        first = session.check("find", {"key": "k"})
        assert first.errors[0].id == "journal/handed-over"
        assert not first.allowed  # learned before
    assert _run("journal", "verify", "--store", target)[0] == 0


@pytest.mark.parametrize(
    "change",
    [
        "DELETE FROM lines",
        f"UPDATE lines SET content = '\\x{zlib.compress(bytes(99_999)).hex()}'",  # noqa: S608 - our bytes, more than it reads
    ],
)
def test_a_session_whose_journal_another_host_has_is_named(
    tmp_path: Path, policy: str, postgres: Server, change: str
) -> None:
    import psycopg

    source = postgres.new_address()
    _fill(policy, source)
    opened = open_named_store(source, caps=None)
    folder = find_journal_folder(opened)
    opened.close()
    assert folder is not None
    (file,) = folder.glob("one-*.jsonl")
    file.unlink()
    with psycopg.connect(source, autocommit=True) as connection:
        connection.execute(change)
    code, output = _run("store", "copy", source, tmp_path / "store.db")
    assert code == 0, output
    assert "1 session has no journal here: copy those of other hosts" in output


def test_a_session_without_its_journal_is_named(
    tmp_path: Path, policy: str, postgres: Server
) -> None:
    store, target = str(tmp_path / "store.db"), postgres.new_address()
    _fill(policy, store)
    (file,) = (tmp_path / "journal").glob("one-*.jsonl")
    file.unlink()
    code, output = _run("store", "copy", store, target)
    assert code == 0, output
    assert "1 session has no journal here, and cannot go on" in output
    with (
        Guard.load(policy, store=target, journal=tmp_path / "elsewhere") as guard,
        pytest.raises(AlteredError, match="copy that file here"),
    ):
        guard.session("one", project="p")
