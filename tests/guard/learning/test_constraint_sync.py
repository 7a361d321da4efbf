"""Learned constraints outlive a process and are shared through a store."""

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

CAPS = Caps(constraints=100, grants=100, evidence=100, anchors=100)
POLICY = """
policyguard: 1
name: lasting
signatures: [{id: wrong, pattern: wrong, blame: agent}, {id: down, pattern: down, blame: harness}]
learn: {corroborate: CORROBORATE, scope: project, ban: call}
"""


def _guard(folder: Path, corroborate: int = 3, extra: str = "") -> Guard:
    file = folder / "policy.yaml"
    file.write_text(POLICY.replace("CORROBORATE", str(corroborate)) + extra)
    return Guard.load(file, store=folder / "state" / "store.db")


def _fail(guard: Guard, session_id: str, text: str = "wrong") -> bool:
    session = guard.session(session_id)
    decision = session.check("build", {"target": "x"})
    if decision.allowed:
        session.record(decision, error=text)
    session.end()
    return decision.allowed


def test_failures_of_different_sessions_corroborate(tmp_path: Path) -> None:
    assert [_fail(_guard(tmp_path), f"s{number}") for number in range(5)] == [
        True,
        True,
        True,
        False,
        False,
    ]


def test_a_ban_learned_under_a_clock_ahead_lasts_one_lifetime(tmp_path: Path) -> None:
    day = 86_400 * 10**9
    file = tmp_path / "policy.yaml"
    file.write_text(POLICY.replace("CORROBORATE", "1, weaken: {lives: 7d}"))

    def is_allowed(days: float) -> bool:
        now = 10**18 + round(days * day)
        with Guard.load(file, store=tmp_path / "s.db", clock=lambda: now) as guard:
            return guard.session(f"s{days}").check("build", {"target": "x"}).allowed

    ahead = 10**18 + 365 * day
    with Guard.load(file, store=tmp_path / "s.db", clock=lambda: ahead) as guard:
        assert _fail(guard, "wrong clock")
    assert [is_allowed(days) for days in (0, 6.9, 7.1)] == [False, False, True]


def test_a_constraint_that_is_deleted_elsewhere_bans_nothing(tmp_path: Path) -> None:
    guard = _guard(tmp_path, 1)
    assert [_fail(guard, "a"), _fail(guard, "b")] == [True, False]
    with closing(SqliteStore(tmp_path / "state" / "store.db", caps=CAPS)) as other:
        (record,) = other.constraints.list()
        other.constraints.delete(record.id)
    assert guard._constraint_sync is not None
    guard._constraint_sync.next_poll = 0.0
    assert _fail(guard, "c")


def test_names_with_surrogates_are_learned_and_stored(tmp_path: Path) -> None:
    """JSON allows lone surrogates, and a model may send them in made-up names."""
    for number in range(2):
        session = _guard(tmp_path, 2).session(f"s{number}\ud800")
        recorded = session.record(
            session.check("build\ud800", {"target": "\ud800"}), error="wrong \udc00"
        )
        assert recorded.errors == ()
        session.end()
    (constraint,) = _guard(tmp_path).constraints()
    assert constraint.tool == r"build\ud800"
    assert not _guard(tmp_path).session("t").check("build\ud800", {"target": "\ud800"}).allowed


@pytest.mark.parametrize("size", [10**30, 10**400], ids=["float", "beyond"])
def test_number_beyond_64_bits_is_learned_approximately(tmp_path: Path, size: int) -> None:
    file, store = tmp_path / "policy.yaml", tmp_path / "state" / "store.db"
    learn = "{corroborate: 1, scope: project, parameters: {wrong: {of: [size], direction: up}}}"
    file.write_text(f"{POLICY.partition('learn:')[0]}learn: {learn}")
    session = Guard.load(file, store=store).session("s")
    assert session.record(session.check("train", {"size": size}), error="wrong size").errors == ()
    reopened = Guard.load(file, store=store).session("t")
    assert not reopened.check("train", {"size": 10 * size}).allowed
    assert reopened.check("train", {"size": 10**29}).allowed


def test_harness_failures_of_different_sessions_teach_nothing(tmp_path: Path) -> None:
    assert all(_fail(_guard(tmp_path), f"s{number}", "down") for number in range(6))


@pytest.mark.parametrize("learn", ["", ", learn: {scope: session}"])
def test_success_in_another_process_discards_the_evidence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, learn: str
) -> None:
    policy = POLICY.replace("pattern: down, blame: harness", f"pattern: down, blame: agent{learn}")
    monkeypatch.setattr(f"{__name__}.POLICY", policy)
    one, other = _guard(tmp_path, 2), _guard(tmp_path, 2)
    assert _fail(one, "a")
    session = other.session("b")
    session.record(session.check("build", {"target": "x"}), result="fine")
    assert _fail(one, "c")
    assert not one.constraints()
    assert _fail(other, "d")
    assert not _fail(other, "e")


def test_success_in_a_session_that_was_handed_over_discards_its_evidence(tmp_path: Path) -> None:
    file = tmp_path / "policy.yaml"
    file.write_text(
        POLICY.partition("learn:")[0] + "learn: {corroborate: 2, scope: session, ban: tool}\n"
    )
    one, other = (Guard.load(file, store=tmp_path / "s.db") for _ in range(2))
    for guard, error in ((one, "wrong"), (other, None), (one, "wrong")):
        with guard.session("s") as session:
            session.record(session.check("build", {"target": "x"}), result="", error=error)
        session.close()
    assert not one.constraints()


def test_a_success_beside_the_failure_ends_the_constraint_in_the_store(tmp_path: Path) -> None:
    session = _guard(tmp_path, 1).session("s")
    failing, succeeding = (session.check("build", {"target": "x"}) for _ in range(2))
    session.record(failing, error="wrong")
    with closing(SqliteStore(tmp_path / "state" / "store.db", caps=CAPS)) as other:
        assert len(list(other.constraints.list())) == 1
        session.record(succeeding, result="fine")
        assert not list(other.constraints.list())


def test_constraints_and_revocations_reach_other_guards_within_a_second(tmp_path: Path) -> None:
    one, other = _guard(tmp_path, 1), _guard(tmp_path, 1)
    assert other.session("x").preview("build", {"target": "x"}).allowed
    assert _fail(one, "a")
    time.sleep(1.05)
    refused = other.session("b").check("build", {"target": "x"})
    assert not refused.allowed
    constraint_id = refused.structured["constraint"]
    assert [constraint.id for constraint in one.constraints()] == [constraint_id]
    other.revoke(constraint_id, by="ann")
    assert other.session("c").check("build", {"target": "x"}).allowed
    time.sleep(1.05)
    assert _fail(one, "d"), "revoked for every process"
    assert _fail(one, "e"), "and not learned again"
    assert list(_guard(tmp_path, 1).constraints()) == []


def test_concurrent_guards_learn_one_constraint(tmp_path: Path) -> None:
    guards = [_guard(tmp_path, 20) for _ in range(4)]

    def fail_repeatedly(guard: Guard, number: int) -> None:
        for index in range(5):
            _fail(guard, f"s{number}-{index}")

    threads = [
        threading.Thread(target=fail_repeatedly, args=(guard, number))
        for number, guard in enumerate(guards)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    (constraint,) = _guard(tmp_path, 20).constraints()
    assert constraint.count == 20
    assert len(constraint.taught_by) == 8


@pytest.mark.parametrize(("mode", "allowed"), [("block", False), ("allow", True)])
def test_failing_store_is_reported_and_handled_as_configured(
    tmp_path: Path, mode: str, allowed: bool
) -> None:
    guard = _guard(tmp_path, 1, f"on_internal_error: {mode}\n")
    session = guard.session("a")
    decision = session.check("build", {"target": "x"})
    with closing(sqlite3.connect(tmp_path / "state" / "store.db")) as database, database:
        tables = [
            name
            for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
            if "evidence" in name or "constraint" in name
        ]
        for name in tables:
            database.execute(f"ALTER TABLE {name} RENAME TO gone_{name}")
    recorded = session.record(decision, error="wrong")
    assert recorded.errors[0].id == "store"
    decision = session.check("other")
    assert decision.allowed is allowed
    assert "store.db" in decision.errors[0].error
    with closing(sqlite3.connect(tmp_path / "state" / "store.db")) as database, database:
        for name in tables:
            database.execute(f"ALTER TABLE gone_{name} RENAME TO {name}")
    assert session.check("other").allowed
    assert not _guard(tmp_path, 1).session("b").check("build", {"target": "x"}).allowed


class FailingStore(SqliteStore):
    """A store whose transactions fail at the end while it is full."""

    is_full = False

    @contextmanager
    def transaction(self) -> Iterator[None]:
        with super().transaction():
            yield
            if self.is_full:
                raise StoreError(self.path, "the disk is full", "make room")


def _guard_with_failing_store(folder: Path, corroborate: int) -> tuple[Guard, FailingStore]:
    _guard(folder, corroborate).close()
    store = FailingStore(folder / "state" / "store.db", caps=CAPS, timeout=0.05)
    return Guard.load(folder / "policy.yaml", store=store), store


def test_failed_constraint_write_is_repeated_before_the_next_check(
    tmp_path: Path,
) -> None:
    guard, store = _guard_with_failing_store(tmp_path, 1)
    session = guard.session("a")
    decision = session.check("build", {"target": "x"})
    store.is_full = True
    assert session.record(decision, error="wrong").learned
    for _ in range(2):
        decision = session.check("other")
        assert not decision.allowed
        assert "the disk is full" in decision.errors[0].error
    store.is_full = False
    assert session.check("other").allowed
    assert not _guard(tmp_path, 1).session("b").check("build", {"target": "x"}).allowed
    store.is_full = True
    assert len(guard.constraints()) == 1, "nothing is left to write"


@pytest.mark.parametrize("event_between", ["check", "record", "others"])
def test_failures_count_although_the_store_was_locked(tmp_path: Path, event_between: str) -> None:
    guard, store = _guard_with_failing_store(tmp_path, 3)
    session = guard.session("a")
    decisions = [session.check("build", {"target": "x"}) for _ in range(2)]
    with closing(sqlite3.connect(store.path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        assert session.record(decisions[0], error="wrong").errors[0].id == "store"
    if event_between == "others":  # the higher count is kept
        assert _fail(_guard(tmp_path, 3), "b")
        assert _fail(_guard(tmp_path, 3), "c")
    if event_between != "record":
        assert session.check("other").allowed
    learned = session.record(decisions[1], error="wrong").learned
    assert bool(learned) is (event_between == "others")
    assert _fail(_guard(tmp_path, 3), "d") is not bool(learned)
    assert not _fail(_guard(tmp_path, 3), "e")


def test_a_guard_that_has_learned_nothing_writes_nothing(tmp_path: Path) -> None:
    guard, store = _guard_with_failing_store(tmp_path, 3)
    session = guard.session("a")
    with closing(sqlite3.connect(store.path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        assert session.check("build", {"target": "x"}).errors == ()


def test_a_success_that_refutes_nothing_writes_nothing(tmp_path: Path) -> None:
    guard, store = _guard_with_failing_store(tmp_path, 3)
    session = guard.session("a")
    decision = session.check("build", {"target": "x"})
    with closing(sqlite3.connect(store.path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        assert session.record(decision, result="fine").errors == ()


def test_call_that_is_allowed_although_the_store_is_locked_is_counted(tmp_path: Path) -> None:
    _guard(tmp_path, 3, "on_internal_error: allow\n").close()
    store = SqliteStore(tmp_path / "state" / "store.db", caps=CAPS, timeout=0.05)
    guard = Guard.load(tmp_path / "policy.yaml", store=store)
    session = guard.session("a")
    decision = session.check("build", {"target": "x"})
    with closing(sqlite3.connect(store.path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        session.record(decision, error="wrong")
        decision = session.check("other")
        assert decision.allowed
        assert "is still locked" in decision.errors[0].error
    assert session.record(decision, result="fine").counted


def test_guard_without_checks_sees_and_revokes_constraints_of_others(tmp_path: Path) -> None:
    admin = _guard(tmp_path, 1)
    assert admin.constraints() == ()
    assert _fail(_guard(tmp_path, 1), "a")
    (constraint,) = admin.constraints()
    assert not admin.revoke("k0", by="ann")
    assert _fail(_guard(tmp_path, 1), "b", "down") is False
    assert admin.revoke(constraint.id, by="ann")
    assert not admin.revoke(constraint.id, by="ann")
    assert admin.constraints() == _guard(tmp_path, 1).constraints() == ()


def test_failed_revocation_can_be_repeated(tmp_path: Path) -> None:
    guard, store = _guard_with_failing_store(tmp_path, 1)
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


def test_closed_guard_does_not_reopen_its_store(tmp_path: Path) -> None:
    guard = _guard(tmp_path)
    guard.close()
    for file in (tmp_path / "state").glob("store.db*"):
        file.unlink()
    assert guard.constraints() == ()
    with pytest.raises(RuntimeError, match="the guard is closed"):
        guard.revoke("k1", by="ann")
    assert list((tmp_path / "state").glob("store.db")) == []


def test_restored_snapshot_holds_constraints_and_evidence(tmp_path: Path) -> None:
    first = _memory_guard(tmp_path)
    assert _fail(first, "a")
    early_snapshot = first.snapshot()
    assert _fail(first, "b")
    for snapshot, allowed in ((early_snapshot, [True, False]), (first.snapshot(), [False])):
        second = _memory_guard(tmp_path)
        second.restore(snapshot)
        assert [_fail(second, f"s{number}") for number in range(len(allowed))] == allowed
    assert _memory_guard(tmp_path).session("x").check("build", {"target": "x"}).allowed


def test_snapshot_round_trips(tmp_path: Path) -> None:
    first = _memory_guard(tmp_path)
    for number in range(3):
        _fail(first, f"s{number}")
    second = _memory_guard(tmp_path)
    second.restore(first.snapshot())
    assert second.snapshot() == first.snapshot()


def test_restoring_does_not_undo_a_revocation(tmp_path: Path) -> None:
    guard = _memory_guard(tmp_path)
    assert all(_fail(guard, name) for name in "ab")
    snapshot = guard.snapshot()
    assert guard.revoke(guard.constraints()[0].id, by="ann")
    guard.restore(snapshot)
    assert guard.constraints() == ()
    assert _fail(guard, "c")


def test_snapshot_is_restored_into_the_store(tmp_path: Path) -> None:
    guard = _guard(tmp_path, 2)
    for target in "xxyyz":
        session = guard.session("s")
        session.record(session.check("build", {"target": target}), error="wrong")
        session.end()
    before = guard.snapshot()
    revoked, remaining = guard.constraints()
    assert guard.revoke(revoked.id, by="ann")
    after = guard.snapshot()
    for table in ("constraints", "evidence"):
        with closing(sqlite3.connect(tmp_path / "state" / "store.db")) as database, database:
            database.execute(f"DELETE FROM {table}")  # noqa: S608 - one of two names
    _guard(tmp_path, 2).restore(before)
    assert len(_guard(tmp_path, 2).constraints()) == 2
    _guard(tmp_path, 2).restore(after)
    reopened = _guard(tmp_path, 2)
    assert reopened.constraints() == (remaining,)
    session = reopened.session("t")
    assert session.check("build", {"target": "x"}).allowed
    session.record(session.check("build", {"target": "z"}), error="wrong")
    assert len(reopened.constraints()) == 2, "the evidence was there"


def test_what_another_guard_refutes_after_a_restore_stays_refuted(tmp_path: Path) -> None:
    guard = _guard(tmp_path, 2)
    assert _fail(guard, "a")
    guard.restore(guard.snapshot())
    session = _guard(tmp_path, 2).session("b")
    session.record(session.check("build", {"target": "x"}), result="fine")
    assert guard.session("c").check("look").allowed
    assert [_fail(_guard(tmp_path, 2), name) for name in "def"] == [True, True, False]


def test_invalid_snapshots_are_rejected(tmp_path: Path) -> None:
    first = _memory_guard(tmp_path)
    snapshot = first.snapshot()
    for data in (b"", b"{}", b"[" * 100_000, snapshot.replace(b'"version":1', b'"version":2')):
        with pytest.raises(ValueError, match="snapshot"):
            first.restore(data)
    other = _memory_guard(tmp_path)
    other.session("open")
    with pytest.raises(ValueError, match="before its first session"):
        other.restore(snapshot)
    with pytest.raises(ValueError, match="into a guard without a store"):
        _guard(tmp_path).restore(snapshot)


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
def test_two_guards_with_one_store_learn_like_one_guard(steps: list[tuple[bool, str, str]]) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        shared = [_guard(folder, 2), _guard(folder, 2)]
        single = _memory_guard(folder)
        for number, (use_second, outcome, target) in enumerate(steps):
            guards = (shared[use_second], single)
            allowed = []
            for guard in guards:
                if guard._constraint_sync is not None:
                    guard._constraint_sync.next_poll = 0.0  # poll as if a second had passed
                session = guard.session(f"s{number}")
                decision = session.check("build", {"target": target})
                allowed.append(decision.allowed)
                if decision.allowed and outcome != "revoke":
                    session.record(decision, result="fine", error=outcome or None)
                elif not decision.allowed and outcome == "revoke":
                    guard.revoke(decision.structured["constraint"], by="test")
                session.end()
            assert allowed[0] == allowed[1], (number, outcome)
        reopened = _guard(folder, 2)
        assert sorted(one.count for one in reopened.constraints()) == sorted(
            one.count for one in single.constraints()
        )


@pytest.mark.parametrize("closes", [False, True])
def test_what_a_session_learned_for_itself_ends_with_it(tmp_path: Path, closes: bool) -> None:
    file = tmp_path / "policy.yaml"
    file.write_text(POLICY.replace("CORROBORATE, scope: project", "2, scope: session"))
    with Guard.load(file, store=tmp_path / "s.db") as guard:
        for id_ in ("a", "b"):
            for arguments in ({"n": 1}, {"n": 1}, {"n": 2}):  # a constraint, and evidence
                session = guard.session(id_)
                session.record(session.check("build", arguments), error="wrong")
        assert not session.check("build", {"n": 1}).allowed
        if closes:
            session.close()
        else:
            session.end()
        kept = ["session:a", "session:b"] if closes else ["session:a"]
        assert sorted(one.scope for one in guard.constraints()) == kept
        assert guard.session("b").check("build", {"n": 1}).allowed is not closes
    with closing(SqliteStore(tmp_path / "s.db", caps=None, read_only=True)) as store:
        assert [scope for scope, _, _ in store.evidence.list()] == kept
        assert sorted(one.scope for one in store.constraints.list()) == kept


def test_a_success_counts_in_a_session_that_was_handed_over(tmp_path: Path) -> None:
    file = tmp_path / "policy.yaml"
    file.write_text(POLICY.replace("CORROBORATE, scope: project", "2, scope: session"))
    first, second = (Guard.load(file, store=tmp_path / "s.db") for _ in range(2))

    def is_allowed(guard: Guard, error: str) -> bool:
        with guard.session("s") as session:
            decision = session.check("build", {"n": 1})
            if decision.allowed:
                session.record(decision, result="fine", error=error or None)
            return decision.allowed

    with first, second:
        first.session("s").close()
        assert is_allowed(second, "wrong")
        assert is_allowed(first, ""), "which refutes what the second guard has learned"
        assert is_allowed(second, "wrong")
        assert is_allowed(second, "")
        assert is_allowed(first, "wrong")
        assert is_allowed(second, "wrong")
        assert not is_allowed(first, "")


def test_a_run_that_ended_takes_nothing_from_a_later_one_of_its_session(tmp_path: Path) -> None:
    file = tmp_path / "policy.yaml"
    file.write_text(POLICY.replace("CORROBORATE, scope: project", "1, scope: session"))
    with Guard.load(file, store=tmp_path / "s.db") as guard:
        guard.session("s").end()
        session = guard.session("s")
        session.record(session.check("build", {"n": 1}), error="wrong")
    with Guard.load(file, store=tmp_path / "s.db") as guard:
        assert not guard.session("s").check("build", {"n": 1}).allowed


def test_a_locked_store_loses_no_end_of_a_session(tmp_path: Path) -> None:
    """What cannot be deleted at once goes with the next write."""
    file = tmp_path / "policy.yaml"
    file.write_text(POLICY.replace("CORROBORATE, scope: project", "1, scope: session"))
    store = SqliteStore(tmp_path / "s.db", caps=CAPS, timeout=0.05)
    guard = Guard.load(file, store=store)
    session = guard.session("a")
    session.record(session.check("build", {"n": 1}), error="wrong")
    with closing(sqlite3.connect(store.path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(StoreError):
            session.end()
    assert [one.scope for one in store.constraints.list()] == ["session:a"]
    assert guard._constraint_sync is not None
    guard._constraint_sync.poll()
    assert store.constraints.list() == ()
    guard.close()
    store.close()
