"""Sessions that go on with another host: nothing is counted anew, and nothing is hidden."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner

from policyguard import AlteredError, Decision, Guard, StoreError
from policyguard.cli import main
from policyguard.journal.chain import Chain, ChainPosition, Hasher, advance
from policyguard.journal.journal import Journal
from policyguard.journal.verify import VerifyResult, verify
from policyguard.store.protocol import Anchor
from tests.store.postgres_server import Server, postgres

__all__ = ["postgres"]

pytest.importorskip("psycopg", reason="psycopg is not installed")
import psycopg

from policyguard.store.postgres.store import PostgresStore

POLICY = """
policyguard: 1
name: fleet
budgets: {own: {calls: 4, per: session}}
limits: {default: {failures: {max: 2, same: error}}}
rules: {asks: {tools: [deploy], effect: ask}}
"""


class Host:
    """A host: its own folder of journals, and a database that others use too."""

    def __init__(self, folder: Path, address: str) -> None:
        folder.mkdir()
        self.address, self.journals, self.policy = address, folder / "journal", folder / "p.yaml"
        self.policy.write_text(POLICY)

    def load(self) -> Guard:
        return Guard.load(self.policy, store=self.address, journal=self.journals)

    def call(self, *calls: str, session: str = "s") -> list[Decision]:
        with self.load() as guard:
            opened = guard.session(session)
            decisions = []
            for call in calls:
                tool, _, error = call.partition("!")
                decision = opened.check(tool, {"n": 1})
                if decision:
                    opened.record(decision, result="ok", error=error or None)
                decisions.append(decision)
            return decisions

    def file(self, session: str = "s") -> Path:
        (file,) = self.journals.glob(f"{session}-*.jsonl")
        return file


@pytest.fixture
def hosts(postgres: Server, tmp_path: Path) -> tuple[Host, Host]:
    address = postgres.new_address()
    return Host(tmp_path / "one", address), Host(tmp_path / "two", address)


def check(address: str, *hosts: Host) -> VerifyResult:
    store = PostgresStore(address, caps=None)
    try:
        return verify([host.journals for host in hosts], anchors=store.anchors)
    finally:
        store.close()


def codes(result: VerifyResult) -> list[str]:
    return [finding.code for finding in result.findings]


def test_a_session_goes_on_with_another_host(hosts: tuple[Host, Host]) -> None:
    one, two = hosts
    assert [*map(bool, one.call("look!broken", "read"))] == [True, True]
    (first, second, third) = two.call("look!broken", "read", "read")
    assert first.allowed and second.allowed  # noqa: PT018 - both are needed
    assert first.errors[0].id == "journal/handed-over"
    assert f"goes on after 5 lines of {os.uname().nodename}:{one.journals}" in first.errors[0].error
    assert not second.errors
    assert third.violations[0].id == "budgets/own"
    assert not one.call("look")[0], "the budget is used up on every host"
    assert one.file().read_bytes().startswith(two.file().read_bytes())
    assert codes(check(one.address, one, two)) == ["journal/handed-over"]
    assert codes(check(one.address, one)) == []
    assert codes(check(one.address, two)) == ["journal/handed-over"]


def test_another_host_explains_a_call(hosts: tuple[Host, Host]) -> None:
    one, two = hosts
    one.call("look", "deploy")
    arguments = ["why", "s", "c2", "--policy", str(two.policy), "--store", two.address]
    result = CliRunner().invoke(main, arguments)
    assert result.exit_code == 0, result.output
    assert "decided   ask, by rules/asks" in result.output
    result = CliRunner().invoke(main, ["why", "none", *arguments[2:]])
    assert (result.exit_code, "has no journal" in result.output) == (2, True)


def test_an_approval_is_used_on_another_host(hosts: tuple[Host, Host]) -> None:
    one, two = hosts
    with one.load() as guard:
        session = guard.session("s")
        asked = session.check("deploy", {"n": 1})
        session.approve(asked, by="ann")
    assert two.call("deploy", "deploy")[0].allowed
    assert not one.call("deploy")[0]


def test_another_host_lists_what_waits(hosts: tuple[Host, Host]) -> None:
    """A question of a session is read from the store, where its parent is resumed too."""
    one, two = hosts
    with one.load() as guard:
        parent = guard.session("parent")
        parent.record(parent.check("read"), result="ok")
        guard.session("child", parent=parent).check("read")
    with two.load() as guard:
        child = guard.session("child", parent="parent")
        assert not child.closed
        assert guard.session("parent").check("read")


def test_questions_of_other_hosts_are_listed(
    hosts: tuple[Host, Host], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Any host lists the calls that wait in sessions which are open nowhere."""
    one, two = hosts
    (asked,) = one.call("deploy")

    def list_questions(guard: Guard) -> list[tuple[str, str]]:
        return [(one.session, one.call) for one in guard.questions(also_closed=True)]

    with two.load() as guard:
        assert list_questions(guard) == [("s", asked.id)]
        with monkeypatch.context() as patch:
            patch.setattr(Journal, "stored_lines", lambda *_: pytest.fail("it is read again"))
            assert list_questions(guard) == [("s", asked.id)]
        guard.session("s").approve(asked, by="ann")
        assert guard.session("s").check("deploy", {"n": 1}).allowed
    for host in hosts:
        with host.load() as guard:
            assert list_questions(guard) == [], "the copy that is behind asks nothing"


def test_what_one_host_removes_is_found(hosts: tuple[Host, Host]) -> None:
    one, two = hosts
    one.call("look", session="a")
    two.call("look", session="b")
    assert codes(check(one.address, one, two)) == []
    assert codes(check(one.address, one)) == ["journal/handed-over"]
    one.file("a").unlink()
    assert codes(check(one.address, one, two)) == ["journal/missing-file"]
    assert codes(check(one.address, one)) == ["journal/missing-file", "journal/handed-over"]
    two.call("look", session="a")  # the store still has it
    assert codes(check(one.address, one, two)) == []
    lines = two.file("a").read_bytes().splitlines(keepends=True)
    two.file("a").write_bytes(b"".join(lines[:-1]))
    assert codes(check(one.address, two)) == ["journal/cut-tail"]


def test_lines_that_were_never_anchored_are_put_aside(hosts: tuple[Host, Host]) -> None:
    one, two = hosts
    one.call("look")
    kept = one.file().read_bytes()
    two.call("read")
    with one.file().open("ab") as file:  # as if written while the database was away
        file.write(b'{"event":"turn_started"}\n')
    (decision,) = one.call("look")
    assert [error.id for error in decision.errors] == [
        "journal/set-aside",
        "journal/handed-over",
    ]
    (aside,) = one.journals.glob("*.aside")
    assert aside.read_bytes() == kept + b'{"event":"turn_started"}\n'
    assert aside.stat().st_mode & 0o777 == 0o600
    assert codes(check(one.address, one, two)) == ["journal/handed-over"]


@pytest.mark.parametrize(
    "change",
    [
        "DELETE FROM lines WHERE start > 0",
        pytest.param("DELETE FROM lines", marks=pytest.mark.slow),
        "UPDATE lines SET content = 'x'",
        "UPDATE lines SET content = '\\x789c030000000001', size = 10",
        "UPDATE lines SET size = size + 1 WHERE start = 0",
    ],
)
def test_lines_that_were_changed_in_the_store_are_refused(
    hosts: tuple[Host, Host], change: str
) -> None:
    one, two = hosts
    one.call("look")
    one.call("read")
    with psycopg.connect(one.address, autocommit=True) as connection:
        connection.execute(change)
    refused = pytest.raises((AlteredError, StoreError), match=r"damaged|lacks lines")
    with two.load() as guard, refused:
        guard.session("s")
    assert not [*two.journals.glob("*")]
    assert one.call("look")[0], "the host that has its journal goes on"


def test_a_journal_that_cannot_be_completed_is_said(hosts: tuple[Host, Host]) -> None:
    one, two = hosts
    one.call("look")
    (two.journals / f"{one.file().name}.part").mkdir(parents=True)
    (decision,) = two.call("look")
    assert "cannot be completed from the store" in decision.errors[0].error


def test_a_journal_begun_before_the_store_had_lines_goes_on(hosts: tuple[Host, Host]) -> None:
    one, two = hosts
    one.call("look")
    with psycopg.connect(one.address, autocommit=True) as connection:
        connection.execute("DELETE FROM lines")
    with two.load() as guard, pytest.raises(AlteredError, match="open the session once on the"):
        guard.session("s")
    one.call("read")
    assert two.call("look")[0].allowed


def test_lines_that_another_host_went_on_without_are_found(hosts: tuple[Host, Host]) -> None:
    """A host died before it had anchored its last lines; they are still in its file."""
    one, two = hosts
    one.call("look")
    anchored = one.file().read_bytes()
    store = PostgresStore(one.address, caps=None)
    anchor = store.anchors.get("s")
    assert anchor is not None
    one.call("read", "read")
    own = one.file().read_bytes().count(b"\n") - anchored.count(b"\n")
    with store.lock_session("s"):  # as if these had never come here
        with psycopg.connect(one.address, autocommit=True) as connection:
            connection.execute("DELETE FROM lines WHERE start >= %s", (anchor.size,))
        store.anchors.put(anchor)
    store.close()
    two.call("look", "look", "look")
    for places in ((one, two), (one,)):
        (finding,) = check(one.address, *places).findings
        assert (finding.code, finding.line) == ("journal/set-aside", anchor.count + 1)
        assert (
            f"{own} lines were never anchored: the session went on without them" in finding.message
        )
    assert not one.call("look")[0]
    assert codes(check(one.address, one, two)) == ["journal/handed-over"]


FROZEN = """
import sys, time
from policyguard import Guard
guard = Guard.load(sys.argv[1], store=sys.argv[2], journal=sys.argv[3])
session = guard.session("s")
session.record(session.check("look"), result="ok")
print("up", flush=True)
sys.stdin.readline()
for _ in range(30):
    decision = session.check("look")
    print("allowed" if decision else "refused", flush=True)
    time.sleep(0.05)
"""


def test_a_host_that_was_frozen_writes_nothing_more(hosts: tuple[Host, Host]) -> None:
    one, two = hosts
    arguments = [str(one.policy), one.address, str(one.journals)]
    frozen = subprocess.Popen(
        [sys.executable, "-c", FROZEN, *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert frozen.stdout is not None
    assert frozen.stdout.readline() == "up\n"
    os.kill(frozen.pid, signal.SIGSTOP)
    with psycopg.connect(one.address, autocommit=True) as connection:

        def read() -> list[object]:
            queries = ("SELECT count, hash FROM anchors", "SELECT start, content FROM lines")
            return [connection.execute(query).fetchall() for query in queries]

        connection.execute(  # as the server does with a host that does not answer
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
            "WHERE application_name = 'policyguard'"
        )
        while connection.execute(
            "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'"
        ).fetchone() != (0,):
            time.sleep(0.02)
        time.sleep(1)  # after which a guard looks at its store before it decides
        with two.load() as guard:
            session = guard.session("s")
            session.record(session.check("look"), result="ok")
            guard._journal.close_session("s")  # type: ignore[union-attr]  # it has one
            before = read()
            os.kill(frozen.pid, signal.SIGCONT)
            said = frozen.communicate("go\n", timeout=60)[0].split()
            assert said == ["refused"] * 30
            assert read() == before
    assert [*map(bool, two.call("look", "look", "look", "look"))] == [True, True, True, False]
    assert not [*one.journals.glob("*.aside")], "it was not opened there"


def test_a_session_that_was_lost_can_be_opened_again(hosts: tuple[Host, Host]) -> None:
    """Its journal goes on after the lines of the host that had it meanwhile."""
    one, two = hosts
    with one.load() as guard:
        session = guard.session("s")
        session.record(session.check("look"), result="ok")
        session.check("deploy")
        guard._journal.confirm("s")  # type: ignore[union-attr]  # it has one
        cut_connections(one.address)
        two.call("read")
        guard._constraint_sync.next_poll = 0.0  # type: ignore[union-attr]  # it has a store
        assert not session.check("look").allowed
        assert session.closed
        assert guard.questions() == (), "what waits is asked by the other host"
        again = guard.session("s")
        decision = again.check("read")
        assert [error.id for error in decision.errors] == ["journal/handed-over"]
        again.record(decision, result="ok")
        cut_connections(one.address)
        guard._constraint_sync.next_poll = 0.0  # type: ignore[union-attr]  # it has a store
        assert again.check("look").allowed, "nobody else has had it since"
    assert codes(check(one.address, one)) == []
    assert one.file().read_bytes().startswith(two.file().read_bytes())


PAUSING = """
import sys, time
from policyguard import Guard
guard = Guard.load(sys.argv[1], store=sys.argv[2], journal=sys.argv[3])
session = guard.session("s")
for _ in range(3):
    session.record(session.check("look"), result="ok")
print("up", flush=True)
sys.stdin.readline()
"""


def test_a_host_that_dies_in_a_pause_leaves_nothing_behind(hosts: tuple[Host, Host]) -> None:
    """Lines are put without a next call: the calls before a pause are counted elsewhere too."""
    one, two = hosts
    arguments = [str(one.policy), one.address, str(one.journals)]
    pausing = subprocess.Popen(
        [sys.executable, "-c", PAUSING, *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert pausing.stdout is not None
    assert pausing.stdout.readline() == "up\n"
    wait_until_put(one)
    pausing.kill()
    pausing.communicate()
    assert [*map(bool, two.call("look", "look"))] == [True, False]


def read_anchor(address: str, session: str = "s") -> Anchor:
    store = PostgresStore(address, caps=None)
    try:
        anchor = store.anchors.get(session)
        assert anchor is not None
        return anchor
    finally:
        store.close()


def wait_until_put(host: Host) -> None:
    lines = host.file().read_bytes().count(b"\n")
    wait_for(lambda: read_anchor(host.address).count == lines)


def wait_for(is_so: Callable[[], bool]) -> None:
    for _ in range(600):
        if is_so():
            return
        time.sleep(0.05)
    pytest.fail("it did not happen")


def cut_connections(address: str) -> None:
    """End all connections, as a network does, and wait until the locks of sessions are gone."""
    with psycopg.connect(address, autocommit=True) as connection:
        connection.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
            "WHERE application_name = 'policyguard'"
        )
        wait_for(
            lambda: (
                connection.execute(
                    "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'"
                ).fetchone()
                == (0,)
            )
        )


@pytest.mark.parametrize("on_error", ["block", "allow"])
def test_an_approval_is_not_used_by_a_host_that_has_lost_the_session(
    hosts: tuple[Host, Host], on_error: str
) -> None:
    one, two = hosts
    one.policy.write_text(f"{POLICY}on_internal_error: {on_error}\n")
    with one.load() as guard:
        session = guard.session("s")
        child = guard.session("child", parent=session)
        asked = session.check("deploy", {"n": 1})
        session.approve(asked, by="ann")
        guard._constraint_sync.next_poll = float("inf")  # type: ignore[union-attr]  # it has a store
        cut_connections(one.address)
        with two.load() as other:
            other.session("s")  # has not written a line yet
            decision = session.check("deploy", {"n": 1})
            assert not decision.allowed
            error = decision.errors[0]  # a guard that hears of it in time has closed the session
            assert error.id == "session/closed" or "opened by another process" in error.error
            assert session.closed
            assert child.closed, "it is let go with its parent"
            assert other.session("s").check("deploy", {"n": 1}).allowed


def test_an_approval_is_not_used_without_the_database(postgres: Server, tmp_path: Path) -> None:
    one = Host(tmp_path / "one", postgres.new_address())
    one.policy.write_text(f"{POLICY}on_internal_error: allow\n")
    with one.load() as guard:
        session = guard.session("s")
        session.approve(session.check("deploy", {"n": 1}), by="ann")
        postgres.stop()
        try:
            assert session.check("look").allowed
            decisions = [session.check("deploy", {"n": 1})]
            guard._constraint_sync.next_poll = 0.0  # type: ignore[union-attr]  # it has a store
            decisions.append(session.check("deploy", {"n": 1}))
        finally:
            postgres.start()
        assert not any(decision.allowed for decision in decisions)
        decision = decisions[0]
        assert decision.errors
        assert not session.closed
        wait_until_put(one)
        wait_for(lambda: session.check("deploy", {"n": 1}).allowed)  # the approval is kept
        assert not session.check("deploy", {"n": 1}).allowed
        wait_until_put(one)  # else closing says that the database is still away


def test_a_session_is_let_go_of_when_its_anchor_is_refused(hosts: tuple[Host, Host]) -> None:
    one, two = hosts
    with one.load() as guard:
        session = guard.session("s")
        assert session.check("look")
        guard._constraint_sync.next_poll = float("inf")  # type: ignore[union-attr]  # it has a store
        cut_connections(one.address)
        with two.load() as other:
            other.session("s")
            session.check("look")  # the anchor of the last call may have been put before
            wait_for(lambda: session.closed)
            assert not session.check("look")


def test_ids_with_a_nul_byte_are_kept_apart(hosts: tuple[Host, Host]) -> None:
    one, two = hosts
    ids = ("a\0b", "a\\0b", "a\x1a0b", "a\x1ab", "a\x1a\0b")
    for number, id_ in enumerate(ids):
        one.call(*["look"] * (number % 4 + 1), session=id_)
    assert codes(check(one.address, one)) == []
    for number, id_ in enumerate(ids):
        left = 3 - number % 4
        assert [*map(bool, two.call("read", session=id_))] == [left > 0]
    assert [finding.severity for finding in check(one.address, one, two).findings] == ["info"] * 5


GOING_ON = """
import sys
from policyguard import Guard
guard = Guard.load(sys.argv[1], store=sys.argv[2], journal=sys.argv[3])
session = guard.session("s")
for line in sys.stdin:
    decision = session.check(line.strip(), {"n": 1})
    if decision:
        session.record(decision, result="ok")
    print("allowed" if decision else "refused", flush=True)
"""


def die_while_the_database_is_away(postgres: Server, host: Host, *calls: str) -> None:
    """Make a call, then others that the database does not get, and die by a signal."""
    arguments = [sys.executable, "-c", GOING_ON, str(host.policy), host.address, str(host.journals)]
    pipe = subprocess.PIPE
    process = subprocess.Popen(arguments, stdin=pipe, stdout=pipe, text=True)
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        for number, call in enumerate(("look", *calls)):
            if number == 1:
                wait_until_put(host)
                postgres.stop()
            process.stdin.write(f"{call}\n")
            process.stdin.flush()
            assert process.stdout.readline()
    finally:
        process.kill()
        process.communicate()
        postgres.start()


def test_a_host_that_died_with_more_lines_than_went_on_is_no_tampering(
    postgres: Server, hosts: tuple[Host, Host]
) -> None:
    one, two = hosts
    die_while_the_database_is_away(postgres, one, "read", "deploy", "deploy", "read")
    two.call("look")
    assert one.file().read_bytes().count(b"\n") > two.file().read_bytes().count(b"\n")
    for places in ((one, two), (one,)):
        found = check(one.address, *places)
        assert not found.has_failed, codes(found)
        assert codes(found) == ["journal/set-aside"]
    rewrite_from(one.file(), 2)  # a line that this host had put itself
    for places in ((one, two), (one,)):
        assert check(one.address, *places).has_failed
    lines = one.file().read_bytes().splitlines(keepends=True)
    one.file().write_bytes(b"".join(lines[:2]))
    for places in ((one, two), (one,)):
        assert codes(check(one.address, *places)) == ["journal/cut-tail"]


def rewrite_from(path: Path, kept: int) -> None:
    """Put another line after some of a journal, with hashes that fit, as an attacker would."""
    hasher = Hasher(None)
    position = ChainPosition()
    lines = path.read_bytes().splitlines()[:kept]
    for line in lines:
        position = advance(hasher, "s", position, line)
    chain = Chain(hasher, position.chain, position.count, position.hash)
    added = [chain.seal('{"event":"turn_started","session":"s","at":1', False) for _ in range(9)]
    path.write_bytes(b"\n".join(lines) + b"\n" + b"".join(added))


def test_a_host_that_died_before_its_first_anchor_is_no_tampering(
    hosts: tuple[Host, Host],
) -> None:
    one, two = hosts
    one.call("look")
    first = one.file().read_bytes().splitlines(keepends=True)[0]
    with psycopg.connect(one.address, autocommit=True) as connection:
        connection.execute("DELETE FROM anchors")
    one.file().write_bytes(first)  # all that a host has that dies then
    two.call("look")
    for places in ((one, two), (one,)):
        assert codes(check(one.address, *places)) == ["journal/set-aside"]
