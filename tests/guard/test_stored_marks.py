"""Marks of agents and projects in a store: several guards on it decide as one would."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from policyguard import Guard, Session
from policyguard.cli import main
from policyguard.compiler import check_tree
from policyguard.engines.yaml_source import parse
from policyguard.store.errors import StoreError
from policyguard.store.memory.store import MemoryStore
from policyguard.store.protocol import Caps
from policyguard.store.sqlite.store import SqliteStore
from tests.guard.journals.test_write_errors import full_disk
from tests.store.postgres_server import Server, postgres

__all__ = ["postgres"]

POLICY = """
policyguard: 1
name: team
marks:
  wrote: {set: {tools: [write]}, per: agent, on_error: set, clear: {tools: [rebase]}}
  tested: {set: {tools: [test], when: outcome.ok}, clear: {tools: [edit]}, per: project}
  read:
    key: call.args.path
    set: {tools: [read]}
    clear: {tools: [edit], key: call.args.path}
    keep: 3
    per: project
  fresh: {set: host, per: project, within: 1h}
  built: {set: {tools: [build]}, clear: {tools: [build, edit]}, per: project}
rules:
  merge: {tools: [merge], when: mark.wrote}
  ship: {tools: [ship], unless: mark.tested}
  edit: {tools: [edit], unless: call.args.path in mark.read}
  deploy: {tools: [deploy], unless: mark.fresh}
  pack: {tools: [pack], unless: mark.built}
"""
CAPS = Caps(constraints=9, grants=9, evidence=9, anchors=99)
HOUR = 3600 * 10**9

Open = Callable[[], Guard]


@pytest.fixture
def policy(tmp_path: Path) -> Path:
    file = tmp_path / "policy.yaml"
    file.write_text(POLICY)
    return file


@pytest.fixture(params=["sqlite", "postgres"])
def open_guard(request: pytest.FixtureRequest, policy: Path, tmp_path: Path) -> Iterator[Open]:
    """Open guards on one store, each with its own connection to it."""
    store: Path | str = tmp_path / "state" / "store.db"
    if request.param == "postgres":
        server: Server = request.getfixturevalue("postgres")
        store = server.new_address()
    guards: list[Guard] = []

    def open_() -> Guard:
        guards.append(Guard.load(policy, store=store))
        return guards[-1]

    yield open_
    for guard in guards:
        guard.close()


def run(session: Session, tool: str, /, **args: Any) -> bool:
    """Run a call that succeeds; return whether it was allowed."""
    decision = session.check(tool, args)
    if decision.allowed:
        assert session.record(decision, result="done").errors == ()
    return decision.allowed


def test_what_one_guard_marks_others_see_at_once(open_guard: Open) -> None:
    one, two = (guard.session(id_, agent="a", project="p") for guard, id_ in _two(open_guard))
    other = two.guard.session("other", agent="b", project="p")
    assert run(two, "merge")
    assert run(one, "write")
    assert not run(two, "merge")
    assert run(other, "merge")
    assert run(two, "rebase")
    assert run(one, "merge")
    assert run(one, "read", path="/x")
    assert not run(two, "edit", path="/y")
    assert run(two, "edit", path="/x")
    assert not run(one, "edit", path="/x")
    assert run(other, "test")
    assert run(one, "ship")
    two.mark("fresh")
    assert run(one, "deploy")
    one.unmark("fresh")
    assert not run(two, "deploy")


def _two(open_guard: Open) -> list[tuple[Guard, str]]:
    return [(open_guard(), "one"), (open_guard(), "two")]


@pytest.mark.parametrize("length", [250, 9000])
def test_names_may_be_odd_and_long(open_guard: Open, length: int) -> None:
    odd = "".join(chr(0x4E00 + number * 7919 % 20_000) for number in range(length))
    names = odd, odd[:-1], "x\x00y", "a'\"%s", "l\udc80", "a\x1fwrote", ""
    guards = open_guard(), open_guard()
    for number, name in enumerate(names):
        one, two = (
            guard.session(f"{number} of {place}", agent=name, project=name)
            for place, guard in enumerate(guards)
        )
        assert run(two, "merge")
        assert not run(two, "ship")
        assert run(one, "write")
        assert run(one, "test")
        assert not run(two, "merge")
        assert run(two, "ship")


def test_nothing_is_set_that_was_cleared_elsewhere_meanwhile(open_guard: Open) -> None:
    one, two = (guard.session(id_, agent="a", project="p") for guard, id_ in _two(open_guard))
    run(two, "read", path="/x")
    tests = one.check("test", {})
    assert run(two, "edit", path="/x")
    one.record(tests, result="passed")  # of what was there before the edit
    assert not run(one, "ship")
    assert not run(two, "ship")
    run(one, "test")
    assert run(two, "ship")
    writing = one.check("write", {})
    assert run(two, "rebase")
    one.record(writing, result="done")  # doubt sets it
    assert not run(two, "merge")


def test_marks_outlive_the_process_and_no_journal_sets_them_again(open_guard: Open) -> None:
    with open_guard() as guard:
        session = guard.session("s", agent="a", project="p")
        run(session, "test")
        run(session, "write")
        begun = session.check("test", {})
        session.close()
    with open_guard() as other:
        cleaner = other.session("cleaner", agent="a", project="p")
        assert not run(cleaner, "merge")
        assert run(cleaner, "ship")
        run(cleaner, "read", path="/x")
        run(cleaner, "edit", path="/x")
        run(cleaner, "rebase")
    with open_guard() as again:
        session = again.session("s", agent="a", project="p")
        assert run(session, "merge")
        session.record(begun, result="passed")
        assert not run(session, "ship")


@pytest.mark.parametrize(("tool", "wanting"), [("test", "ship"), ("build", "pack")])
def test_a_result_that_another_process_reports_sets_marks(
    open_guard: Open, tool: str, wanting: str
) -> None:
    def step(tool: str) -> bool:
        """Check a call in one process, and report its result in another."""
        with open_guard() as guard:
            decision = guard.session("s", project="p").check(tool, {"path": "/x"})
        if decision.allowed:
            with open_guard() as guard:
                guard.session("s", project="p").record(decision.id, result="done")
        return decision.allowed

    assert step(tool)
    assert step(wanting)
    with open_guard() as guard:
        other = guard.session("other", project="p")
        other.mark("read", "/x")
        run(other, "edit", path="/x")
    assert not step(wanting)
    assert step(tool)
    assert step(wanting)
    with open_guard() as guard:
        begun = guard.session("s", project="p").check(tool, {})
    with open_guard() as guard:
        other = guard.session("other", project="p")
        other.mark("read", "/x")
        run(other, "edit", path="/x")
        guard.session("s", project="p").record(begun.id, result="done")
        assert not run(other, wanting)


def test_a_call_sets_what_it_has_cleared_itself(open_guard: Open) -> None:
    one, two = (guard.session(id_, agent="a", project="p") for guard, id_ in _two(open_guard))
    run(one, "build")
    assert run(one, "pack")
    assert run(two, "pack")
    building = one.check("build", {})
    run(two, "build")
    one.record(building, result="done")  # it ran beside the other
    assert not run(two, "pack")


def test_a_call_that_did_not_run_gives_back_what_it_cleared(open_guard: Open) -> None:
    one, two = (guard.session(id_, agent="a", project="p") for guard, id_ in _two(open_guard))
    run(one, "write")
    rebasing = one.check("rebase", {})
    assert two.preview("merge", {}).allowed
    one.release(rebasing)
    assert not run(two, "merge")


def test_what_it_cleared_comes_back_though_another_process_releases_it(open_guard: Open) -> None:
    def step(tool: str, *, release: bool = False) -> bool:
        with open_guard() as guard:
            decision = guard.session("s", agent="a").check(tool, {})
        with open_guard() as guard:
            session = guard.session("s", agent="a")
            if decision.allowed and release:
                session.release(decision.id)
            elif decision.allowed:
                session.record(decision.id, result="done")
        return decision.allowed

    assert step("rebase", release=True)
    assert step("merge"), "it had cleared nothing"
    assert step("write")
    assert step("rebase", release=True)
    assert not step("merge")
    assert step("rebase")
    assert step("merge")


DIES = """
import os, sys
from policyguard import Guard

guard = Guard.load(sys.argv[1], store=sys.argv[2])
session = guard.session("s", agent="a", project="p")
for tool in ("write", "test", "read"):
    session.record(session.check(tool, {"path": "/x"}), result="done")
session.record(session.check("build", {}), result="done")
guard._stored_marks._records.update = lambda *_: os._exit(9)
session.check(sys.argv[3], {"path": "/x"}, call="h1")
"""
"""A process that is killed when it has written an admission, and not what this clears."""


@pytest.mark.parametrize("tool", ["edit", "rebase"])
def test_what_a_process_could_not_store_is_cleared_once_its_session_goes_on(
    policy: Path, tmp_path: Path, tool: str
) -> None:
    path = tmp_path / "state" / "store.db"
    died = subprocess.run([sys.executable, "-c", DIES, policy, path, tool], check=False)
    assert died.returncode == 9
    with Guard.load(policy, store=path) as guard, Guard.load(policy, store=path) as other:
        session = guard.session("s", agent="a", project="p")
        beside = other.session("t", agent="a", project="p")
        assert [*session.in_flight] == ["h1"]
        for one in (session, beside):
            assert one.preview("ship", {}).allowed is (tool == "rebase")
            assert one.preview("edit", {"path": "/x"}).allowed is (tool == "rebase")
            assert not one.preview("merge", {}).allowed
        version = guard._stored_marks._records.version()
        session.close()
        session = guard.session("s", agent="a", project="p")
        assert guard._stored_marks._records.version() == version, "it is known by now"
        assert run(beside, "test")
        session.record("h1", result="done")
        assert beside.preview("ship", {}).allowed is (tool == "rebase")


def test_too_many_keys_fall_out_for_all(open_guard: Open) -> None:
    one, two = (guard.session(id_, agent="a", project="p") for guard, id_ in _two(open_guard))
    for number in range(3):
        run((one, two)[number % 2], "read", path=str(number))
    assert two.preview("edit", {"path": "0"}).allowed
    decision = one.check("read", {"path": "3"})
    assert [error.id for error in one.record(decision, result="").errors] == ["marks/read"]
    assert not run(two, "edit", path="0")
    assert run(two, "edit", path="3")


class Clock:
    """A clock that a test advances."""

    def __init__(self, now: int) -> None:
        self.now = now

    def __call__(self) -> int:
        return self.now


def test_a_clock_ahead_lets_no_mark_live_longer(policy: Path) -> None:
    store = MemoryStore(caps=CAPS)
    now = 1_800_000_000 * 10**9
    ahead, clock = Clock(now + 1000 * HOUR), Clock(now)
    slow = Guard.load(policy, store=store, clock=clock).session("slow", project="p")
    fast = Guard.load(policy, store=store, clock=ahead).session("fast", project="p")
    fast.mark("fresh")
    assert run(slow, "deploy")
    clock.now += HOUR // 2
    assert run(slow, "deploy")
    clock.now += HOUR
    assert not run(slow, "deploy")


def test_a_clock_behind_ends_no_mark_that_closes_a_way(tmp_path: Path) -> None:
    file = tmp_path / "policy.yaml"
    file.write_text(POLICY.replace("on_error: set,", "on_error: set, within: 1h,"))
    store = MemoryStore(caps=CAPS)
    now = 1_800_000_000 * 10**9
    one = Guard.load(file, store=store, clock=Clock(now)).session("one", agent="a")
    behind = Guard.load(file, store=store, clock=Clock(now - 2 * HOUR)).session("two", agent="a")
    run(one, "write")
    assert not behind.preview("merge", {}).allowed
    assert not run(one, "merge")


def test_a_mark_that_another_program_wrote_opens_no_way(policy: Path, tmp_path: Path) -> None:
    path = tmp_path / "state" / "store.db"
    with Guard.load(policy, store=path) as guard:
        session = guard.session("s", agent="a", project="p")
        session.mark("fresh")
        session.mark("read", "/x")
        run(session, "rebase")  # `wrote` is known, and not set
        session.end()
    with sqlite3.connect(path) as database:
        database.execute("UPDATE marks SET mac = 'forged'")
    database.close()
    with Guard.load(policy, store=path) as guard:
        session = guard.session("t", agent="a", project="p")
        assert not run(session, "deploy")
        assert not run(session, "edit", path="/x")
        assert not run(session, "merge"), "doubt sets it"
        session.mark("fresh")
        assert run(session, "deploy")
        run(session, "rebase")
        assert run(session, "merge")
    result = CliRunner().invoke(main, ["journal", "verify", "--store", str(path)])
    assert result.exit_code == 1
    assert "`marks`" in result.output


def test_a_mark_that_another_program_wrote_is_reported_and_ends_with_its_record(
    policy: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "state" / "store.db"
    with Guard.load(policy, store=path) as guard:
        session = guard.session("s", agent="a", project="p")
        assert run(session, "write")
        assert run(session, "test")
    with sqlite3.connect(path) as database:
        database.execute("UPDATE marks SET mac = 'forged'")
    database.close()
    store = SqliteStore(path, caps=CAPS, timeout=0.1)
    with caplog.at_level("WARNING", "policyguard"), Guard.load(policy, store=store) as guard:
        session = guard.session("t", agent="a", project="p")
        assert [run(session, tool) for tool in ("list", "merge", "list")] == [True, False, True]
        assert sorted(record.message.split(":")[0] for record in caplog.records) == [
            "mark `tested` of the store does not count",
            "mark `wrote` of the store does not count",
        ]
        with closing(SqliteStore(path, caps=CAPS)) as other:
            for mark in other.marks.list():
                if mark.key == "wrote":
                    other.marks.delete(mark.id)
        assert run(session, "merge")
        _refuse(session, path, "rebase")
        caplog.clear()
        assert run(session, "list"), "all is loaded anew"
        assert run(session, "list")
        assert not caplog.records, "`tested` was reported before"
        assert not run(session, "ship")


def test_a_mark_that_another_program_wrote_was_perhaps_cleared(
    policy: Path, tmp_path: Path
) -> None:
    path = tmp_path / "state" / "store.db"
    with Guard.load(policy, store=path) as guard, Guard.load(policy, store=path) as other:
        session, editor = guard.session("s", project="p"), other.session("e", project="p")
        begun = session.check("test", {})
        editor.mark("read", "/x")
        run(editor, "edit", path="/x")
        with sqlite3.connect(path) as database:
            database.execute("UPDATE meta SET value = value + 1 WHERE name = 'marks version'")
            database.execute(
                "UPDATE marks SET mac = 'forged', version = "
                "(SELECT value FROM meta WHERE name = 'marks version')"
            )
        database.close()
        session.record(begun, result="passed")
        assert not run(session, "ship")
        run(session, "test")
        assert run(session, "ship")


def test_marks_cannot_be_exchanged(policy: Path, tmp_path: Path) -> None:
    path = tmp_path / "state" / "store.db"
    with Guard.load(policy, store=path) as guard:
        guard.session("s", project="p").mark("fresh")
        guard.session("t", project="q").unmark("fresh")
    with sqlite3.connect(path) as database:
        ((payload, mac),) = database.execute("SELECT payload, mac FROM marks WHERE id LIKE '%p%p%'")
        database.execute("UPDATE marks SET payload = ?, mac = ?", (payload, mac))
    database.close()
    with Guard.load(policy, store=path) as guard:
        assert guard.session("u", project="p").check("deploy", {}).allowed
        assert not guard.session("v", project="q").check("deploy", {}).allowed


def _lock(path: Path) -> sqlite3.Connection:
    database = sqlite3.connect(path, isolation_level=None)
    database.execute("BEGIN IMMEDIATE")
    return database


def test_what_a_locked_store_did_not_take_waits_for_it(policy: Path, tmp_path: Path) -> None:
    path = tmp_path / "state" / "store.db"
    stores = [SqliteStore(path, caps=CAPS, timeout=0.1) for _ in range(2)]
    guards = [Guard.load(policy, store=store) for store in stores]
    with guards[0], guards[1]:
        one, two = (
            guard.session(id_, agent="a", project="p")
            for guard, id_ in zip(guards, "xy", strict=True)
        )
        run(one, "write")
        writing = one.check("write", {})
        testing = one.check("test", {})
        lock = _lock(path)
        (error,) = one.record(testing, result="passed").errors
        assert error.id == "store"
        assert "locked" in error.error
        refused = one.check("merge", {})
        assert not refused.allowed
        with pytest.raises(StoreError, match="locked"):
            one.mark("fresh")
        lock.execute("ROLLBACK")
        lock.close()
        one.record(writing, result="done")
        assert run(one, "ship")
        assert run(two, "ship")
        assert run(two, "deploy")


def test_calls_that_read_and_change_no_such_mark_run_while_the_store_is_locked(
    policy: Path, tmp_path: Path
) -> None:
    policy.write_text(POLICY.replace("marks:", "marks:\n  own: {set: {tools: [note]}}"))
    store = SqliteStore(tmp_path / "state" / "store.db", caps=CAPS, timeout=0.1)
    with Guard.load(policy, store=store) as guard:
        session = guard.session("s", agent="a", project="p")
        assert run(session, "test")
        assert run(session, "ship")
        writing = session.check("write", {})
        begun = session.check("list", {})
        lock = _lock(store.path)
        assert session.record(writing, result="done").errors, "so something waits to be written"
        session.record(begun, result="done")
        assert session.check("list", {}).allowed
        assert session.check("note", {}).allowed
        for tool in ("write", "merge", "ship", "edit"):
            decision = session.check(tool, {"path": "/x"})
            assert not decision.allowed, tool
            assert "locked" in decision.errors[0].error
            assert session.preview("list", {}).allowed
        lock.execute("ROLLBACK")
        lock.close()
        assert run(session, "write")
        assert not run(session, "merge")


def test_a_call_that_cannot_be_written_leaves_what_waits_for_the_store(
    policy: Path, tmp_path: Path
) -> None:
    store = SqliteStore(tmp_path / "state" / "store.db", caps=CAPS, timeout=0.1)
    with Guard.load(policy, store=store) as guard:
        session = guard.session("s", agent="a", project="p")
        writing = session.check("write", {})
        lock = _lock(store.path)
        session.record(writing, result="done")
        with full_disk():
            assert not session.check("list", {}).allowed
        lock.execute("ROLLBACK")
        lock.close()
        assert not run(session, "merge")


def test_a_result_counts_with_what_is_known_while_the_store_is_away(tmp_path: Path) -> None:
    file = tmp_path / "policy.yaml"
    file.write_text(
        POLICY.replace("{tools: [build]}, clear", "{tools: [build], when: mark.tested}, clear")
    )
    store = SqliteStore(tmp_path / "state" / "store.db", caps=CAPS, timeout=0.1)
    with Guard.load(file, store=store) as guard:
        session = guard.session("s", agent="a", project="p")
        run(session, "test")
        building, writing = session.check("build", {}), session.check("write", {})
        lock = _lock(store.path)
        session.record(writing, result="done")
        assert session.check("list", {}).allowed  # which has seen that the store is away
        assert session.record(building, result="done").outcome.ok
        lock.execute("ROLLBACK")
        lock.close()
        assert run(session, "pack")


def test_a_call_does_not_run_whose_clearing_is_not_stored(policy: Path, tmp_path: Path) -> None:
    path = tmp_path / "state" / "store.db"
    stores = [SqliteStore(path, caps=CAPS, timeout=0.1) for _ in range(2)]
    guards = [Guard.load(policy, store=store) for store in stores]
    with guards[0], guards[1]:
        one, two = (
            guard.session(id_, agent="a", project="p")
            for guard, id_ in zip(guards, "xy", strict=True)
        )
        run(one, "test")
        run(one, "read", path="/x")
        lock = _lock(path)
        decision = one.check("edit", {"path": "/x"})
        assert not decision.allowed
        assert [error.id for error in decision.errors] == ["journal"]
        assert not one._state.in_flight
        lock.execute("ROLLBACK")
        lock.close()
        assert run(one, "read", path="/x")
        assert run(one, "edit", path="/x")
        assert not run(two, "ship")


def test_what_was_set_before_a_clearing_is_stored_comes_back(
    policy: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = MemoryStore(caps=CAPS)
    one, two = (
        Guard.load(policy, store=store).session(id_, agent="a", project="p") for id_ in "xy"
    )
    writing = two.check("write", {})
    update = store.marks.update

    def write_first(id_: str, make: Any) -> None:
        monkeypatch.undo()
        two.record(writing, result="done")  # after the other call was decided
        update(id_, make)

    monkeypatch.setattr(store.marks, "update", write_first)
    rebasing = one.check("rebase", {})
    assert run(two, "merge")
    one.release(rebasing)
    assert not run(two, "merge")


def test_what_a_refused_call_would_have_cleared_stays_set(policy: Path, tmp_path: Path) -> None:
    path = tmp_path / "state" / "store.db"
    stores = [SqliteStore(path, caps=CAPS, timeout=0.1) for _ in range(2)]
    guards = [Guard.load(policy, store=store) for store in stores]
    with guards[0], guards[1]:
        one, two = (
            guard.session(id_, agent="a", project="p")
            for guard, id_ in zip(guards, "xy", strict=True)
        )
        run(one, "test")
        writing = two.check("write", {})
        lock = _lock(path)
        assert not one.check("rebase", {}).allowed
        lock.execute("ROLLBACK")
        lock.close()
        two.record(writing, result="done")
        assert not run(one, "merge")
        assert not run(two, "merge")
        assert run(one, "ship")


def test_what_a_refused_call_would_have_cleared_is_read_again(
    policy: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    policy.write_text("".join(line for line in POLICY.splitlines(True) if "[edit], un" not in line))
    store = SqliteStore(tmp_path / "state" / "store.db", caps=CAPS, timeout=0.1)
    reads, changes = [], store.marks.changes
    with Guard.load(policy, store=store) as guard:
        session = guard.session("s", agent="a", project="p")
        run(session, "test")
        _refuse(session, store.path, "edit")
        monkeypatch.setattr(
            store.marks, "changes", lambda since: (reads.append(since), changes(since))[1]
        )
        assert run(session, "ship"), "no edit has cleared it"
        assert run(session, "list")
    assert reads == [0]


def _refuse(session: Session, path: Path, tool: str) -> None:
    """Check a call whose clearing cannot be stored."""
    lock = _lock(path)
    decision = session.check(tool, {})
    assert [error.id for error in decision.errors] == ["journal"]
    assert not decision.allowed
    lock.execute("ROLLBACK")
    lock.close()


@pytest.mark.parametrize("doubt", ["unset", "set"])
def test_a_mark_of_another_form_is_as_its_doubt_says(tmp_path: Path, doubt: str) -> None:
    policies = []
    for name, keyed, plain in (("first", "a", "b"), ("second", "b", "a")):
        file = tmp_path / f"{name}.yaml"
        policies.append(file)
        file.write_text(
            "policyguard: 1\nname: team\nmarks:\n"
            f"  {keyed}: {{set: host, key: call.args.id, per: project, on_error: {doubt}}}\n"
            f"  {plain}: {{set: host, per: project, on_error: {doubt}}}\n"
            "rules:\n"
            f"  one: {{tools: [one], unless: call.args.id in mark.{keyed}}}\n"
            f"  count: {{tools: [count], unless: size(mark.{keyed}) > 0}}\n"
            f"  plain: {{tools: [plain], unless: mark.{plain}}}\n"
        )
    store = tmp_path / "state" / "store.db"
    with Guard.load(policies[0], store=store) as guard:
        session = guard.session("s", project="p")
        session.mark("a", "x")
        session.mark("b")
    with Guard.load(policies[1], store=store) as guard:
        session = guard.session("t", project="p")
        for tool in ("one", "count", "plain"):
            assert session.preview(tool, {"id": "x"}).allowed is (doubt == "set")
        session.mark("a")
        session.mark("b", "y")
        for tool in ("one", "count", "plain"):
            assert session.preview(tool, {"id": "y"}).allowed


@pytest.mark.parametrize("doubt", ["unset", "set"])
def test_a_mark_that_keeps_fewer_keys_now_forgets_the_oldest(tmp_path: Path, doubt: str) -> None:
    file, store = tmp_path / "policy.yaml", tmp_path / "state" / "store.db"
    text = POLICY.replace("keep: 3", f"keep: 9\n    on_error: {doubt}")
    file.write_text(text)
    with Guard.load(file, store=store) as guard:
        for path in "abcdef":
            guard.session("s", project="p").mark("read", path)
    file.write_text(text.replace("keep: 9", "keep: 2"))
    with Guard.load(file, store=store) as guard:
        session = guard.session("t", project="p")
        for again in ("abcdef", "bcdefg"):
            allowed = [path for path in again if session.preview("edit", {"path": path}).allowed]
            assert allowed == list(again[-2:] if doubt == "unset" else again)
            session.mark("read", "g")


def test_what_is_set_already_is_not_written_again(policy: Path) -> None:
    store = MemoryStore(caps=CAPS)
    one, two = (
        Guard.load(policy, store=store).session(id_, agent="a", project="p") for id_ in "xy"
    )
    run(one, "write")
    version = store.marks.version()
    run(one, "write")
    run(two, "write")
    assert store.marks.version() == version
    writing = one.check("write", {})
    run(two, "rebase")
    one.record(writing, result="done")
    assert not run(two, "merge")


@pytest.fixture(params=["memory", "store"])
def open_few(request: pytest.FixtureRequest, policy: Path, tmp_path: Path) -> Open:
    """Open guards that keep a mark of four agents and projects: one, or several on a store."""
    policy.write_text(POLICY + "bounds: {budget_keys: 4}\n")
    if request.param == "store":
        return lambda: Guard.load(policy, store=tmp_path / "state" / "store.db")
    alone = Guard.load(policy)
    return lambda: alone


def _of(guard: Guard, name: str) -> Session:
    return guard.session(name, agent=name, project=name)


def test_agents_without_end_open_no_way_to_another(open_few: Open) -> None:
    guard = open_few()
    for name in ("writer", "clean"):
        run(_of(guard, name), "write")
        run(_of(guard, name), "test")
    run(_of(guard, "clean"), "rebase")
    for number in range(9):
        run(_of(guard, f"flood {number}"), "write")
        run(_of(guard, f"flood {number}"), "test")
    for session in (_of(guard, "writer"), _of(open_few(), "new")):
        assert not session.check("merge", {}).allowed, "perhaps it has fallen out"
        assert not session.check("ship", {}).allowed
        assert run(session, "rebase")
        assert run(session, "merge")
        for number in range(9):
            run(_of(guard, f"flood {number}"), "write")
        assert run(session, "merge"), "those that are set tell nothing any more"


def test_what_falls_out_in_one_guard_falls_out_in_others(
    policy: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    policy.write_text(POLICY + "bounds: {budget_keys: 4}\n")
    one, two = (Guard.load(policy, store=tmp_path / "state" / "store.db") for _ in range(2))
    session = _of(two, "clean")
    assert [run(session, tool) for tool in ("write", "rebase", "merge")] == [True] * 3
    for number in range(9):
        run(_of(one, f"flood {number}"), "write")
    assert not session.check("merge", {}).allowed, "two must not count on what has fallen out"
    assert (
        "mark `wrote` is kept for 4 agents (`bounds.budget_keys`): for those of which it changed "
        "least recently it counts as set"
    ) in caplog.messages
    for number in range(9):
        run(_of(two, f"again {number}"), "write")
    last = one.session("last", agent="again 8")
    assert not last.check("merge", {}).allowed


def test_agents_of_which_nothing_is_set_fall_out_first(open_few: Open) -> None:
    guard = open_few()
    run(_of(guard, "writer"), "write")
    run(_of(guard, "writer"), "test")
    for number in range(9):
        session = _of(guard, f"flood {number}")
        run(session, "write")
        run(session, "rebase")
        session.mark("read", "/x")
        run(session, "edit", path="/x")
    assert not _of(guard, "writer").check("merge", {}).allowed
    assert _of(guard, "writer").check("ship", {}).allowed
    assert _of(guard, "new").check("merge", {}).allowed


def test_what_was_cleared_for_one_that_fell_out_is_not_set_by_an_older_call(open_few: Open) -> None:
    guard, other = open_few(), open_few()
    session, editor = _of(guard, "p"), other.session("editor", project="p")
    session.mark("read", "/x")
    begun = session.check("test", {})
    run(editor, "edit", path="/x")
    for number in range(9):
        run(_of(other, f"flood {number}"), "test")
    session.record(begun, result="passed")
    assert not session.check("ship", {}).allowed
    assert run(session, "test")
    assert run(session, "ship")


STEPS = st.lists(
    st.tuples(
        st.sampled_from(
            ["read", "edit", "test", "write", "rebase", "end", "release", "mark", "build"]
        ),
        st.booleans(),
        st.sampled_from(["/a", "/b", "/c", "/d"]),
    ),
    max_size=30,
)
"""A step, which of two guards takes it, and a path."""


@given(STEPS)
def test_two_guards_on_a_store_decide_as_one(steps: list[tuple[str, bool, str]]) -> None:
    root = parse(POLICY.encode(), "policy.yaml").root
    assert root is not None

    def load(store: MemoryStore | None) -> Guard:
        compiled, _ = check_tree(root, environ={})
        assert compiled is not None
        return Guard(compiled, store=store)

    store = MemoryStore(caps=CAPS)
    alone = load(None)
    both = [load(store), load(store)]
    outcomes: list[list[object]] = []
    for guards in ([alone, alone], both):
        sessions = [
            guard.session(id_, agent="a", project="p")
            for guard, id_ in zip(guards, "xy", strict=True)
        ]
        outcomes.append(list(_play(sessions, steps)))
    assert outcomes[0] == outcomes[1]


def _play(sessions: list[Session], steps: list[tuple[str, bool, str]]) -> Iterator[object]:
    """Play steps; yield each decision, and at the end which calls are allowed."""
    running: list[tuple[Session, str]] = []
    for step, is_second, path in steps:
        session = sessions[is_second]
        if step in ("end", "release"):
            if running:
                owner, call = running.pop(0)
                owner.record(call, result="") if step == "end" else owner.release(call)
        elif step == "mark":
            session.mark("read", path)
        else:
            decision = session.check(step, {"path": path})
            yield decision.effect
            if decision.allowed:
                running.append((session, decision.id))
    for session in sessions:
        for tool in ("merge", "ship", "pack"):
            yield session.preview(tool, {}).allowed
        yield [session.preview("edit", {"path": path}).allowed for path in ("/a", "/b", "/c", "/d")]
