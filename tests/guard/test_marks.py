"""Marks: what the host sets, what a journal rebuilds, what sessions and sub-agents share."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from policyguard import Guard, Session
from policyguard.compiler import check_tree, compile_policy
from policyguard.engines.yaml_source import parse
from policyguard.evaluator.marks.mark_tables import LocalMarks
from policyguard.guard.replay import ReplayGuard
from policyguard.model.event import (
    Admitted,
    Completed,
    Event,
    MarkChange,
    Marked,
    SessionEnded,
    SessionStarted,
)
from tests.examples import examples

POLICY = """
policyguard: 1
name: marks
marks:
  tested: {set: {tools: [test], when: outcome.ok}, clear: {tools: [edit]}}
  approved: {set: host, clear: {tools: [ship]}}
  read:
    key: call.args.path
    set: {tools: [read]}
    clear: {tools: [edit], key: call.args.path}
    keep: 3
  spoke: {set: {tools: [speak]}, per: turn}
rules:
  ship: {tools: [ship], unless: mark.tested && mark.approved}
  edit: {tools: [edit], unless: call.args.path in mark.read, effect: ask}
  call: {tools: [call], unless: mark.spoke}
"""
"""Sessions of a run share these."""


def load_text(text: str) -> Guard:
    """Load a policy from its text."""
    root = parse(text.encode(), "policy.yaml").root
    assert root is not None
    compiled, diagnostics = check_tree(root, environ={})
    assert compiled is not None, diagnostics
    return Guard(compiled)


@pytest.fixture
def policy(tmp_path: Path) -> Path:
    file = tmp_path / "policy.yaml"
    file.write_text(POLICY)
    return file


def run(session: Session, tool: str, /, **args: Any) -> bool:
    """Run a call that succeeds; return whether it was allowed."""
    decision = session.check(tool, args)
    if decision.allowed:
        session.record(decision, result="done")
    return decision.allowed


def test_the_host_sets_and_clears(policy: Path) -> None:
    session = Guard.load(policy).session("s")
    run(session, "test")
    assert not run(session, "ship")
    session.mark("approved")
    assert run(session, "ship")
    assert not run(session, "ship")  # the first has cleared it
    session.mark("read", "/a")
    assert run(session, "edit", path="/a")
    session.mark("read", key="/b")
    session.mark("read", key="/c")
    session.unmark("read", "/b")
    assert not run(session, "edit", path="/b")
    session.unmark("read")
    assert not run(session, "edit", path="/c")


def test_a_call_clears_all_that_it_names_and_again_when_it_ends(policy: Path) -> None:
    session = Guard.load(policy).session("s")
    session.mark("approved")
    run(session, "read", path="/a")
    edit = session.check("edit", {"path": "/a"})
    assert not session.preview("edit", {"path": "/a"}).allowed
    run(session, "test")  # while the edit runs
    session.record(edit, result="done")
    assert not run(session, "ship")


def test_another_process_knows_what_each_call_has_cleared(policy: Path, tmp_path: Path) -> None:
    with Guard.load(policy, store=tmp_path / "state.db") as guard:
        session = guard.session("s")
        run(session, "test")
        session.mark("approved")
        for path in ("/a", "/b"):
            session.mark("read", path)
            assert run(session, "edit", path=path)
    with Guard.load(policy, store=tmp_path / "state.db") as guard:
        session = guard.session("s")
        assert not run(session, "ship")
        assert not any(run(session, "edit", path=path) for path in ("/a", "/b"))


def test_a_keyed_mark_is_set_while_one_of_its_keys_is() -> None:
    text = POLICY.replace("  read:\n", "  read:\n    within: 60s\n")
    assert text != POLICY
    session = load_text(text).session("s")
    begin = 4_102_444_800 * 10**9  # no earlier than the start of the session
    for path, seconds in (("/a", 0), ("/b", 30)):
        decision = session.check("read", {"path": path}, at=begin + seconds * 10**9)
        session.record(decision, result="done", at=begin + seconds * 10**9)
    marks = session._state.marks
    assert marks is not None
    found = [marks.list_set(session._state, begin + at * 10**9) for at in (59, 61, 89, 91)]
    assert found == [["read"], ["read"], ["read"], []]


def test_a_policy_without_marks_goes_on_with_a_session_that_has_some(
    policy: Path, tmp_path: Path
) -> None:
    with Guard.load(policy, store=tmp_path / "state.db") as guard:
        run(guard.session("s"), "read", path="/a")
    policy.write_text("policyguard: 1\nname: bare\n")
    with Guard.load(policy, store=tmp_path / "state.db") as guard:
        assert run(guard.session("s"), "edit", path="/a")


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        (lambda session: session.mark("aproved"), KeyError, "did you mean `approved`"),
        (lambda session: session.unmark("zzz"), KeyError, "it has: tested, approved, read, spoke"),
        (lambda session: session.mark("read"), ValueError, "mark `read` has keys; pass `key`"),
        (lambda session: session.mark("approved", "x"), ValueError, "mark `approved` has no keys"),
        (lambda session: session.mark("read", 7), TypeError, "`key`"),
        (lambda session: session.mark(None), TypeError, "`id`"),
    ],
)
def test_a_wrong_mark_is_an_error(policy: Path, change: Any, error: type, message: str) -> None:
    session = Guard.load(policy).session("s")
    with pytest.raises(error, match=message.replace("(", r"\(")):
        change(session)


def test_a_policy_without_marks_names_none() -> None:
    with pytest.raises(KeyError, match="it has: none"):
        Guard.load("core").session("s").mark("approved")


def test_the_host_marks_from_an_event_loop(policy: Path, tmp_path: Path) -> None:
    async def main() -> bool:
        async with Guard.load(policy, store=tmp_path / "state.db") as guard:
            session = guard.session("s")
            session.mark("tested")
            session.mark("approved")
            return (await session.acheck("ship", {})).allowed

    assert asyncio.run(main())


def test_another_process_resumes_with_the_marks(policy: Path, tmp_path: Path) -> None:
    store = tmp_path / "state.db"
    with Guard.load(policy, store=store) as guard:
        session = guard.session("s")
        run(session, "test")
        session.mark("approved")
        for path in ("/a", "/b", "/c"):
            run(session, "read", path=path)
        assert run(session, "edit", path="/b")
        run(session, "test")
        session.mark("approved")
        run(session, "speak")
        running = session.check("test", {})
        session.close()
    with Guard.load(policy, store=store) as guard:
        session = guard.session("s")
        states = session._state.marks
        assert states is not None
        assert states.list_set(session._state, None) == ["approved", "read", "spoke", "tested"]
        assert not run(session, "edit", path="/b")
        assert run(session, "edit", path="/a")
        session.record(running.id, result="passed")  # it began before that edit
        assert not run(session, "ship")
        assert run(session, "call")
        session.turn()
        assert not run(session, "call")
    text = "".join(file.read_text() for file in tmp_path.rglob("*.jsonl"))
    assert '"tested"' in text
    assert "/a" not in text  # keys are as secret as arguments


def test_a_call_that_is_resumed_without_arguments_does_not_set_in_doubt(
    policy: Path, tmp_path: Path
) -> None:
    store = tmp_path / "state.db"
    with Guard.load(policy, store=store) as guard:
        session = guard.session("s")
        running = session.check("read", {"path": "/a"})
        session.close()
    with Guard.load(policy, store=store) as guard:
        session = guard.session("s")
        recorded = session.record(running.id, result="text")
        assert [error.id for error in recorded.errors] == ["marks/read"]
        assert not run(session, "edit", path="/a")


def test_the_run_of_a_sub_agent_is_rebuilt(policy: Path, tmp_path: Path) -> None:
    store = tmp_path / "state.db"
    with Guard.load(policy, store=store) as guard:
        parent = guard.session("parent")
        child = guard.session("child", parent=parent)
        run(child, "test")
        child.mark("approved")
        run(child, "read", path="/a")
        run(child, "read", path="/b")
        run(parent, "edit", path="/a")
        run(child, "test")
        running = child.check("test", {})
        run(child, "read", path="/b")
        run(parent, "edit", path="/b")
    with Guard.load(policy, store=store) as guard:
        child = guard.session("child")  # its journal alone would set what was cleared since
        parent = guard.session("parent")
        for session in (child, parent):
            assert not session.preview("ship", {}).allowed
            assert not session.preview("edit", {"path": "/a"}).allowed
            assert not session.preview("edit", {"path": "/b"}).allowed
        child.record(running.id, result="passed")  # it began before the last edit
        assert not parent.preview("ship", {}).allowed
        run(child, "test")
        assert run(parent, "ship")


def test_a_sub_agent_that_is_rebuilt_clears_nothing_again(policy: Path, tmp_path: Path) -> None:
    store = tmp_path / "state.db"
    with Guard.load(policy, store=store) as guard:
        parent = guard.session("parent")
        child = guard.session("child", parent=parent)
        for session in (child, parent):
            run(session, "test")
            session.mark("approved")
            if session is child:
                assert run(session, "ship")
    with Guard.load(policy, store=store) as guard:
        guard.session("child")
        assert run(guard.session("parent"), "ship")


@pytest.mark.parametrize("scope", ["agent", "project"])
def test_sessions_of_an_agent_or_project_share_marks(tmp_path: Path, scope: str) -> None:
    file = tmp_path / "policy.yaml"
    file.write_text(POLICY.replace("when: outcome.ok}", f"when: outcome.ok}}, per: {scope}"))
    guard = Guard.load(file)
    one = guard.session("1", agent="a", project="p")
    two = guard.session("2", agent="a", project="p")
    other = guard.session("3", agent="b", project="q")
    for session in (one, two, other):
        session.mark("approved")
    run(one, "test")
    one.end()
    assert two.preview("ship", {}).allowed
    assert not other.preview("ship", {}).allowed


def test_agents_without_end_do_not_grow_memory(tmp_path: Path) -> None:
    file = tmp_path / "policy.yaml"
    file.write_text(
        POLICY.replace("when: outcome.ok}", "when: outcome.ok}, per: agent")
        + "bounds: {budget_keys: 3}\n"
    )
    guard = Guard.load(file)
    for number in range(5):
        session = guard.session(str(number), agent=str(number))
        run(session, "test")
        session.end()
    states = guard._state.evaluator_state.marks
    assert states is not None
    assert isinstance(states.shared, LocalMarks)
    assert [len(found) for found in states.shared._states.values()] == [3]
    assert not any(states._runs._states.values())


def test_recorded_sessions_without_an_agent_leave_no_marks_behind(tmp_path: Path) -> None:
    text = POLICY.replace("when: outcome.ok}", "when: outcome.ok}, per: agent, on_error: set")
    text = (
        text.replace("unless: mark.tested && mark.approved", "when: mark.tested")
        + "bounds: {budget_keys: 3}\n"
    )
    (tmp_path / "policy.yaml").write_text(text)
    guard = ReplayGuard(compile_policy(tmp_path / "policy.yaml"))
    for number in range(5):
        id_ = str(number)
        session = guard.start_session(SessionStarted(id_, 0))
        assert session.check(Admitted(id_, 0, call="c1", tool="ship", args={})).allowed
        session.check(Admitted(id_, 0, call="c2", tool="test", args={}))
        session.record(Completed(id_, 0, call="c2"))
        assert not session.check(Admitted(id_, 0, call="c3", tool="ship", args={})).allowed
        session.apply(SessionEnded(id_, 0))


MINUTE = 60 * 10**9
"""In nanoseconds."""

TAINTED = """
policyguard: 1
name: tainted
marks:
  tainted:
    key: call.args.path
    set: {tools: [fetch]}
    clear: {tools: [wash]}
    within: 1h
    keep: 2
    on_error: set
rules:
  clean-only: {tools: [send], when: call.args.path in mark.tainted}
"""


def test_what_a_released_call_gives_back_expires_no_earlier_than_what_was_set_meanwhile(
    tmp_path: Path,
) -> None:
    path = tmp_path / "policy.yaml"
    path.write_text(TAINTED)
    now = 10**18
    with Guard.load(path, clock=lambda: now) as guard, guard.session("run") as session:
        assert run(session, "fetch", path="/a")
        now += 40 * MINUTE
        washing = session.check("wash", {})
        assert run(session, "fetch", path="/a")
        session.release(washing)
        now += 30 * MINUTE
        assert not run(session, "send", path="/a")


def test_too_many_keys_of_a_mark_that_closes_a_way_are_said_and_outlive_the_process(
    tmp_path: Path,
) -> None:
    path = tmp_path / "policy.yaml"
    path.write_text(TAINTED)
    with Guard.load(path, store=tmp_path / "state.db") as guard, guard.session("run") as session:
        for name in "ab":
            assert run(session, "fetch", path=name)
        recorded = session.record(session.check("fetch", {"path": "c"}), result="done")
        assert "every key counts as set" in recorded.errors[0].error
    with Guard.load(path, store=tmp_path / "state.db") as guard, guard.session("run") as session:
        assert not run(session, "send", path="a")
        assert run(session, "wash")
        assert run(session, "send", path="a")


def test_ten_thousand_keys_stay_within_keep() -> None:
    guard = load_text(POLICY.replace("keep: 3", "keep: 100"))
    session = guard.session("s")
    for number in range(10_000):
        session.mark("read", str(number))
    assert session.preview("edit", {"path": "9999"}).allowed
    assert session.preview("edit", {"path": "9900"}).allowed
    assert not session.preview("edit", {"path": "9899"}).allowed
    decision = session.check("read", {"path": "x"})
    (error,) = session.record(decision, result="").errors
    assert error.id == "marks/read"
    assert "more than 100 keys" in error.error
    for number in range(10_000):
        session.unmark("read", str(number))
    states = guard._state.evaluator_state.marks
    assert states is not None
    state = states._runs._states["read"]["session", "s"]
    assert len(state.keys) + len(state.cleared_keys) <= 200


def test_parallel_calls_never_set_what_is_cleared() -> None:
    guard = load_text(POLICY)
    session = guard.session("s")
    session.mark("read", "/a")
    barrier = threading.Barrier(2)
    failures = []

    def test() -> None:
        for _ in range(100):
            decision = session.check("test", {})
            barrier.wait()  # the edit is admitted after this run has begun
            barrier.wait()
            session.record(decision, result="passed")
            if session._state.marks.is_set(session._state, "tested", None):  # type: ignore[union-attr]  # the policy has marks
                failures.append(decision.id)
            barrier.wait()

    def edit() -> None:
        for _ in range(100):
            barrier.wait()
            session.record(session.check("edit", {"path": "/a"}), result="")
            session.mark("read", "/a")
            barrier.wait()
            barrier.wait()

    threads = [threading.Thread(target=target) for target in (test, edit)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures


def test_events_say_what_was_set_and_cleared(policy: Path) -> None:
    guard = Guard.load(policy)
    events: list[Event] = []
    guard.on(events.append)
    session = guard.session("s")
    run(session, "test")
    session.mark("read", "/a")
    run(session, "edit", path="/a")
    key = guard._fingerprinter.fingerprint_text("/a")
    found = [
        event.cleared if isinstance(event, Admitted) else event.marks
        for event in events
        if isinstance(event, (Admitted, Completed, Marked))
    ]
    assert found == [
        (),
        (MarkChange("tested"),),
        (MarkChange("read", key),),
        (MarkChange("tested"), MarkChange("read", key)),
        (),
    ]


Step = tuple[str, str, str]
CALLS = ("test", "edit", "read", "ship", "speak")
STEPS = st.lists(
    st.tuples(
        st.sampled_from(["parent", "child"]),
        st.sampled_from(
            [*CALLS, "begin", "fail", "end", "release", "turn", "mark", "unmark", "wipe"]
        ),
        st.sampled_from("abcde"),
    ),
    max_size=30,
)


def perform(sessions: dict[str, Session], steps: list[Step]) -> None:
    """Perform steps in the sessions."""
    begun: list[tuple[Session, str]] = []
    for name, step, path in steps:
        session = sessions[name]
        if step in CALLS:
            run(session, step, path=path)
        elif step in ("begin", "fail"):
            decision = session.check("test" if path < "c" else "edit", {"path": path})
            if decision.allowed and step == "begin":
                begun.append((session, decision.id))
            elif decision.allowed:
                session.record(decision, error="failed")
        elif step in ("end", "release") and begun:
            owner, call = begun.pop(0)
            owner.record(call, result="") if step == "end" else owner.release(call)
        elif step == "turn":
            session.turn()
        elif step in ("mark", "unmark"):
            getattr(session, step)("read", path)
        elif step == "wipe":
            session.unmark("tested")


def marks_of(session: Session) -> dict[str, set[str]]:
    states = session._state.marks
    assert states is not None
    return {
        name: set(state.keys)
        for name, found in states._runs._states.items()
        for (_, owner), state in found.items()
        if owner == "parent" and state.keys
    }


@settings(max_examples=examples(100, 8), deadline=None)
@given(STEPS)
def test_a_replayed_journal_rebuilds_the_marks(
    tmp_path_factory: pytest.TempPathFactory, steps: list[Step]
) -> None:
    folder = tmp_path_factory.mktemp("store")
    file = folder / "policy.yaml"
    file.write_text(POLICY)
    with Guard.load(file, store=folder / "state.db", cache=False) as guard:
        parent = guard.session("parent")
        sessions = {"parent": parent, "child": guard.session("child", parent=parent)}
        perform(sessions, steps)
        before = marks_of(parent)
    with Guard.load(file, store=folder / "state.db", cache=False) as guard:
        guard.session("child")
        assert marks_of(guard.session("parent")) == before


def test_a_mark_may_be_set_by_one_of_several_events() -> None:
    text = POLICY.replace(
        "{set: {tools: [test], when: outcome.ok}",
        "{set: [{tools: [test], when: outcome.ok}, {tools: [ci]}]",
    )
    assert text != POLICY
    session = load_text(text).session("s")
    session.mark("approved")
    run(session, "ci")
    assert run(session, "ship")


def test_a_cancelled_call_sets_nothing() -> None:
    session = load_text(POLICY).session("s")
    decision = session.check("read", {"path": "/a"})
    session.record(decision, error=asyncio.CancelledError())
    assert not run(session, "edit", path="/a")


MINUTE = 60 * 10**9
"""In nanoseconds."""

CLOSING = """
policyguard: 1
name: closing
batch: all_or_none
marks: {secret: {set: {tools: [read]}, clear: {tools: [forget]}, on_error: set}}
rules:
  send: {tools: [send], when: mark.secret}
  never: {tools: [never]}
"""


def test_a_clearing_call_that_does_not_run_clears_nothing_that_closes_a_way() -> None:
    session = load_text(CLOSING).session("s")
    run(session, "read")
    decisions = session.check_batch([("forget", {}), ("never", {})], batch="b")
    assert not any(decisions)
    assert not run(session, "send")
    assert run(session, "forget")
    assert run(session, "send")


def test_a_run_is_rebuilt_with_what_sub_agents_could_not_clear(tmp_path: Path) -> None:
    policy, store = tmp_path / "policy.yaml", tmp_path / "state.db"
    policy.write_text(CLOSING)
    with Guard.load(policy, store=store) as guard:
        for name, is_released in (("released", True), ("overlapping", False)):
            parent = guard.session(name)
            child = guard.session(f"child-{name}", parent=parent)
            run(parent, "read")
            decision = child.check("forget", {})
            if is_released:
                child.release(decision)
            else:
                run(parent, "read")
                child.record(decision, result="done")
            assert not parent.preview("send", {}).allowed
    with Guard.load(policy, store=store) as guard:
        for name in ("released", "overlapping"):
            assert not guard.session(name).preview("send", {}).allowed
