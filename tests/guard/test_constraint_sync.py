"""What is learned outlives the process, and is shared by those who keep one store."""

from __future__ import annotations

import sqlite3
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from policyguard import Guard
from policyguard.store.errors import StoreError
from policyguard.store.protocol import Caps
from policyguard.store.sqlite.store import SqliteStore
from tests.examples import examples

CAPS = Caps(constraints=100, evidence=100, anchors=100)
POLICY = """
policyguard: 1
name: lasting
signatures: [{id: wrong, pattern: wrong, blame: agent}, {id: down, pattern: down, blame: harness}]
learn: {corroborate: CORROBORATE, scope: project, ban: call}
"""


def _guard(folder: Path, corroborate: int = 3, more: str = "") -> Guard:
    file = folder / "policy.yaml"
    file.write_text(POLICY.replace("CORROBORATE", str(corroborate)) + more)
    return Guard.load(file, store=folder / "state" / "store.db")


def _fail(guard: Guard, session: str, text: str = "wrong") -> bool:
    run = guard.session(session)
    decision = run.check("build", {"target": "x"})
    if decision.allowed:
        run.record(decision, error=text)
    run.end()
    return decision.allowed


def test_one_failure_a_session_three_sessions_long_corroborates(tmp_path: Path) -> None:
    assert [_fail(_guard(tmp_path), f"s{n}") for n in range(5)] == [True, True, True, False, False]


def test_what_no_file_can_hold_is_learned_and_lasts_all_the_same(tmp_path: Path) -> None:
    """Halves of surrogate pairs: JSON has them, and a model that makes up a name may send them."""
    for number in range(2):
        run = _guard(tmp_path, 2).session(f"s{number}\ud800")
        recorded = run.record(run.check("build\ud800", {"target": "\ud800"}), error="wrong \udc00")
        assert recorded.errors == ()
        run.end()
    (constraint,) = _guard(tmp_path).constraints()
    assert constraint.tool == r"build\ud800"
    assert not _guard(tmp_path).session("t").check("build\ud800", {"target": "\ud800"}).allowed


@pytest.mark.parametrize("size", [10**30, 10**400], ids=["float", "beyond"])
def test_a_number_beyond_64_bits_is_learned_as_near_as_it_can_be_kept(
    tmp_path: Path, size: int
) -> None:
    file, store = tmp_path / "policy.yaml", tmp_path / "state" / "store.db"
    learn = "{corroborate: 1, scope: project, parameters: {wrong: {of: [size], direction: up}}}"
    file.write_text(f"{POLICY.partition('learn:')[0]}learn: {learn}")
    run = Guard.load(file, store=store).session("s")
    assert run.record(run.check("train", {"size": size}), error="wrong size").errors == ()
    again = Guard.load(file, store=store).session("t")
    assert not again.check("train", {"size": 10 * size}).allowed
    assert again.check("train", {"size": 10**29}).allowed


def test_the_harness_is_never_blamed_over_sessions(tmp_path: Path) -> None:
    assert all(_fail(_guard(tmp_path), f"s{n}", "down") for n in range(6))


def test_a_success_elsewhere_begins_anew(tmp_path: Path) -> None:
    one, other = _guard(tmp_path, 2), _guard(tmp_path, 2)
    assert _fail(one, "a")
    run = other.session("b")
    run.record(run.check("build", {"target": "x"}), result="fine")
    assert _fail(one, "c")
    assert _fail(other, "d")
    assert not _fail(other, "e")


def test_others_see_a_constraint_and_its_revocation_within_a_second(tmp_path: Path) -> None:
    one, other = _guard(tmp_path, 1), _guard(tmp_path, 1)
    assert other.session("x").preview("build", {"target": "x"}).allowed
    assert _fail(one, "a")
    time.sleep(1.05)
    refused = other.session("b").check("build", {"target": "x"})
    assert not refused.allowed
    id_ = refused.structured["constraint"]
    assert [constraint.id for constraint in one.constraints()] == [id_]
    other.revoke(id_, by="ann")
    assert other.session("c").check("build", {"target": "x"}).allowed
    time.sleep(1.05)
    assert _fail(one, "d"), "revoked for every process"
    assert _fail(one, "e"), "and not learned again"
    assert list(_guard(tmp_path, 1).constraints()) == []


def test_two_that_learn_at_once_learn_as_one(tmp_path: Path) -> None:
    guards = [_guard(tmp_path, 20) for _ in range(4)]

    def work(guard: Guard, number: int) -> None:
        for place in range(5):
            _fail(guard, f"s{number}-{place}")

    threads = [threading.Thread(target=work, args=(guard, n)) for n, guard in enumerate(guards)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    (constraint,) = _guard(tmp_path, 20).constraints()
    assert constraint.count == 20
    assert len(constraint.taught_by) == 8


@pytest.mark.parametrize(("mode", "allowed"), [("block", False), ("allow", True)])
def test_a_store_that_fails_is_told_and_answered_as_the_policy_says(
    tmp_path: Path, mode: str, allowed: bool
) -> None:
    guard = _guard(tmp_path, 1, f"on_internal_error: {mode}\n")
    session = guard.session("a")
    decision = session.check("build", {"target": "x"})
    with sqlite3.connect(tmp_path / "state" / "store.db") as database:
        tables = [
            name
            for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
            if "evidence" in name or "constraint" in name
        ]
        for name in tables:
            database.execute(f"ALTER TABLE {name} RENAME TO gone_{name}")
    recorded = session.record(decision, error="wrong")
    assert recorded.errors[0].id == "store"
    answer = session.check("other")
    assert answer.allowed is allowed
    assert "store.db" in answer.errors[0].error
    with sqlite3.connect(tmp_path / "state" / "store.db") as database:
        for name in tables:
            database.execute(f"ALTER TABLE gone_{name} RENAME TO {name}")
    assert session.check("other").allowed
    assert not _guard(tmp_path, 1).session("b").check("build", {"target": "x"}).allowed


class Failing(SqliteStore):
    """While it is `full`, what was done in a transaction cannot be written at its end."""

    full = False

    @contextmanager
    def transaction(self) -> Iterator[None]:
        with super().transaction():
            yield
            if self.full:
                raise StoreError(self.path, "the disk is full", "make room")


def _failing(folder: Path, corroborate: int) -> tuple[Guard, Failing]:
    _guard(folder, corroborate).close()
    store = Failing(folder / "state" / "store.db", caps=CAPS, timeout=0.05)
    return Guard.load(folder / "policy.yaml", store=store), store


def test_what_could_not_be_written_at_the_end_is_written_before_the_next_check(
    tmp_path: Path,
) -> None:
    guard, store = _failing(tmp_path, 1)
    session = guard.session("a")
    decision = session.check("build", {"target": "x"})
    store.full = True
    assert session.record(decision, error="wrong").learned
    for _ in range(2):
        answer = session.check("other")
        assert not answer.allowed
        assert "the disk is full" in answer.errors[0].error
    store.full = False
    assert session.check("other").allowed
    assert not _guard(tmp_path, 1).session("b").check("build", {"target": "x"}).allowed


@pytest.mark.parametrize("between", ["check", "record", "others"])
def test_failures_count_that_the_store_did_not_take_at_once(tmp_path: Path, between: str) -> None:
    guard, store = _failing(tmp_path, 3)
    session = guard.session("a")
    decisions = [session.check("build", {"target": "x"}) for _ in range(2)]
    with closing(sqlite3.connect(store.path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        assert session.record(decisions[0], error="wrong").errors[0].id == "store"
    if between == "others":  # what counts more stays
        assert _fail(_guard(tmp_path, 3), "b")
        assert _fail(_guard(tmp_path, 3), "c")
    if between != "record":
        assert session.check("other").allowed
    learned = session.record(decisions[1], error="wrong").learned
    assert bool(learned) is (between == "others")
    assert _fail(_guard(tmp_path, 3), "d") is not bool(learned)
    assert not _fail(_guard(tmp_path, 3), "e")


def test_who_makes_no_checks_sees_and_revokes_what_others_have_learned(tmp_path: Path) -> None:
    admin = _guard(tmp_path, 1)
    assert admin.constraints() == ()
    assert _fail(_guard(tmp_path, 1), "a")
    (constraint,) = admin.constraints()
    assert not admin.revoke("k0", by="ann")
    assert _fail(_guard(tmp_path, 1), "b", "down") is False
    assert admin.revoke(constraint.id, by="ann")
    assert not admin.revoke(constraint.id, by="ann")
    assert admin.constraints() == _guard(tmp_path, 1).constraints() == ()


def test_a_revocation_that_the_store_does_not_take_may_be_repeated(tmp_path: Path) -> None:
    guard, store = _failing(tmp_path, 1)
    assert _fail(guard, "a")
    (constraint,) = guard.constraints()
    with closing(sqlite3.connect(store.path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(StoreError, match="locked"):
            guard.revoke(constraint.id, by="ann")
    assert guard.constraints() == (constraint,)
    assert guard.revoke(constraint.id, by="ann")
    assert guard.constraints() == _guard(tmp_path, 1).constraints() == ()


def _memory_guard(folder: Path) -> Guard:
    file = folder / "policy.yaml"
    file.write_text(POLICY.replace("CORROBORATE", "2"))
    return Guard.load(file)


def test_a_closed_guard_does_not_open_its_store_again(tmp_path: Path) -> None:
    guard = _guard(tmp_path)
    guard.close()
    for file in (tmp_path / "state").glob("store.db*"):
        file.unlink()
    assert guard.constraints() == ()
    with pytest.raises(RuntimeError, match="the guard is closed"):
        guard.revoke("k1", by="ann")
    assert list((tmp_path / "state").glob("store.db")) == []


def test_a_second_session_begins_with_what_the_first_has_learned(tmp_path: Path) -> None:
    first = _memory_guard(tmp_path)
    assert _fail(first, "a")
    half = first.snapshot()
    assert _fail(first, "b")
    for snapshot, allowed in ((half, [True, False]), (first.snapshot(), [False])):
        second = _memory_guard(tmp_path)
        second.restore(snapshot)
        assert [_fail(second, f"s{n}") for n in range(len(allowed))] == allowed
    assert _memory_guard(tmp_path).session("x").check("build", {"target": "x"}).allowed


def test_a_snapshot_is_the_identity(tmp_path: Path) -> None:
    first = _memory_guard(tmp_path)
    for n in range(3):
        _fail(first, f"s{n}")
    second = _memory_guard(tmp_path)
    second.restore(first.snapshot())
    assert second.snapshot() == first.snapshot()


def test_what_was_revoked_here_stays_so_whatever_a_snapshot_says(tmp_path: Path) -> None:
    guard = _memory_guard(tmp_path)
    assert all(_fail(guard, name) for name in "ab")
    snapshot = guard.snapshot()
    assert guard.revoke(guard.constraints()[0].id, by="ann")
    guard.restore(snapshot)
    assert guard.constraints() == ()
    assert _fail(guard, "c")


def test_a_snapshot_is_restored_into_the_store(tmp_path: Path) -> None:
    guard = _guard(tmp_path, 2)
    for target in "xxyyz":
        run = guard.session("s")
        run.record(run.check("build", {"target": target}), error="wrong")
        run.end()
    before = guard.snapshot()
    gone, stays = guard.constraints()
    assert guard.revoke(gone.id, by="ann")
    after = guard.snapshot()
    for table in ("constraints", "evidence"):
        with closing(sqlite3.connect(tmp_path / "state" / "store.db")) as database, database:
            database.execute(f"DELETE FROM {table}")  # noqa: S608 - one of two names
    _guard(tmp_path, 2).restore(before)
    assert len(_guard(tmp_path, 2).constraints()) == 2
    _guard(tmp_path, 2).restore(after)
    again = _guard(tmp_path, 2)
    assert again.constraints() == (stays,)
    run = again.session("t")
    assert run.check("build", {"target": "x"}).allowed
    run.record(run.check("build", {"target": "z"}), error="wrong")
    assert len(again.constraints()) == 2, "the evidence was there"


def test_what_is_no_snapshot_is_refused(tmp_path: Path) -> None:
    first = _memory_guard(tmp_path)
    snapshot = first.snapshot()
    for wrong in (b"", b"{}", b"[" * 100_000, snapshot.replace(b'"version":1', b'"version":2')):
        with pytest.raises(ValueError, match="snapshot"):
            first.restore(wrong)
    other = _memory_guard(tmp_path)
    other.session("open")
    with pytest.raises(ValueError, match="before its first session"):
        other.restore(snapshot)


@settings(max_examples=examples(25), deadline=None)
@given(
    st.lists(
        st.tuples(
            st.booleans(),
            st.sampled_from(["wrong", "wrong 2", "down", "", "revoke"]),
            st.sampled_from("ab"),
        ),
        max_size=14,
    )
)
def test_two_processes_know_what_one_would(steps: list[tuple[bool, str, str]]) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        shared = [_guard(folder, 2), _guard(folder, 2)]
        alone = _memory_guard(folder)
        for number, (second, what, target) in enumerate(steps):
            pair = (shared[second], alone)
            answers = []
            for guard in pair:
                if guard._constraint_sync is not None:
                    guard._constraint_sync.next_poll = 0.0  # as if a second had passed
                run = guard.session(f"s{number}")
                decision = run.check("build", {"target": target})
                answers.append(decision.allowed)
                if decision.allowed and what != "revoke":
                    run.record(decision, result="fine", error=what or None)
                elif not decision.allowed and what == "revoke":
                    guard.revoke(decision.structured["constraint"], by="test")
                run.end()
            assert answers[0] == answers[1], (number, what)
        last = _guard(folder, 2)
        assert sorted(one.count for one in last.constraints()) == sorted(
            one.count for one in alone.constraints()
        )
