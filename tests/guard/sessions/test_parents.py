"""Sub-agents: their parents, and what happens when an ancestor ends."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from policyguard import Guard
from policyguard.guard.session import Session
from policyguard.model.event import Event, SessionEnded
from policyguard.store.errors import SessionBusyError

FIVE_CALLS = "budgets: {five: {calls: 5, per: session}}\n"


def load(folder: Path, policy: str = FIVE_CALLS, *, store: bool = False, **options: Any) -> Guard:
    file = folder / "policy.yaml"
    file.write_text(f"policyguard: 1\nname: parents\n{policy}")
    return Guard.load(file, store=folder / "state" / "store.db" if store else None, **options)


def count_allowed(session: Session, attempts: int) -> int:
    """Return how many of some calls are allowed."""
    return sum(session.check("x", {"n": number}).allowed for number in range(attempts))


def test_ancestor_stays_open_while_its_sub_agents_are_used(tmp_path: Path) -> None:
    guard = load(tmp_path, FIVE_CALLS + "bounds: {sessions: 3}\n")
    root = guard.session("root")
    leaf = guard.session("0", parent=guard.session("middle", parent=root))
    allowed = count_allowed(leaf, 1)
    for number in range(1, 8):
        allowed += count_allowed(guard.session(str(number), parent="middle"), 1)
    assert allowed == 5
    assert leaf.closed
    assert not root.closed


def test_sub_agent_cannot_evict_its_parent(tmp_path: Path) -> None:
    guard = load(tmp_path, FIVE_CALLS + "bounds: {sessions: 1}\n")
    parent = guard.session("parent")
    for _ in range(2):
        with pytest.raises(RuntimeError, match=r"no room for a sub-agent of session `parent`"):
            guard.session("child", parent=parent)
    assert not parent.closed
    guard.session("other")
    assert parent.closed


def test_sub_agent_evicts_others_before_a_parent_that_is_older(tmp_path: Path) -> None:
    """To open a sub-agent is to use its parent."""
    guard = load(tmp_path, FIVE_CALLS + "bounds: {sessions: 3}\n")
    parent, idle, other = (guard.session(name) for name in ("parent", "idle", "other"))
    child = guard.session("child", parent=parent)
    assert child.check("x").allowed
    assert [one.closed for one in (parent, idle, other)] == [False, True, False]


def test_sub_agent_that_could_not_open_is_not_counted(tmp_path: Path) -> None:
    rule = "rules: {r: {when: session.children > 0}}\n"
    guard = load(tmp_path, rule + "bounds: {sessions: 1}\n")
    parent = guard.session("parent")
    with pytest.raises(RuntimeError, match="no room"):
        guard.session("child", parent=parent)
    assert parent.check("x").allowed


def test_ending_an_old_session_does_not_end_its_successors_children(tmp_path: Path) -> None:
    guard = load(tmp_path)
    old = guard.session("a")
    old.end()
    child = guard.session("child", parent=guard.session("a"))
    old.end()
    assert child.check("x").allowed


def test_sub_agents_end_with_their_parent(tmp_path: Path) -> None:
    ended_ids: list[str] = []

    def listener(event: Event) -> None:
        if isinstance(event, SessionEnded):
            ended_ids.append(event.session)

    guard = load(tmp_path, listener=listener)
    root, other = guard.session("root"), guard.session("other")
    middle = guard.session("middle", parent=root)
    leaf = guard.session("leaf", parent=middle)
    root.end()
    assert ended_ids == ["leaf", "middle", "root"]
    assert not leaf.check("x").allowed
    assert not other.closed


def test_missing_parent_is_an_error(tmp_path: Path) -> None:
    guard = load(tmp_path)
    ended, unnamed = guard.session("over"), guard.session("")
    ended.end()
    other_guard_session = load(tmp_path).session("elsewhere")
    for parent, message in (
        ("nowhere", "`parent` is `nowhere`: no such session is open"),
        ("over", "`parent` is `over`: no such session is open"),
        ("child", "`child`, which is the session itself"),
        (ended, "session `over`, which is closed"),
        (other_guard_session, "session `elsewhere` of another guard"),
        (unnamed, "with an empty id"),
    ):
        with pytest.raises(ValueError, match=message):
            guard.session("child", parent=parent)
    guard.close()
    with pytest.raises(RuntimeError, match="the guard is closed"):
        guard.session("child", parent="nowhere")


def test_session_with_an_empty_id_is_not_a_default_parent(tmp_path: Path) -> None:
    guard = load(tmp_path)
    assert count_allowed(guard.session(""), 5) == 5
    assert count_allowed(guard.session("other"), 5) == 5


@pytest.mark.parametrize("pass_parent", [True, False])
def test_parent_is_resumed_before_its_sub_agents(tmp_path: Path, pass_parent: bool) -> None:
    with load(tmp_path, store=True) as first:
        root = first.session("root", agent="boss")
        middle = first.session("middle", parent=root)
        if not pass_parent:
            first.session("leaf", parent=middle)
        assert count_allowed(root, 3) == 3
    second = load(tmp_path, store=True)
    leaf = second.session("leaf", parent="middle" if pass_parent else None)
    assert count_allowed(leaf, 5) == 2
    assert not second.session("root").check("x").allowed


def test_parent_of_an_ended_session_is_not_inherited(tmp_path: Path) -> None:
    with load(tmp_path, store=True) as first:
        child = first.session("child", parent=first.session("parent"))
        child.end()
        first.session("child")
    with load(tmp_path, store=True) as third, load(tmp_path, store=True) as second:
        third.session("parent")
        assert count_allowed(second.session("child"), 5) == 5
        with pytest.raises(SessionBusyError):
            second.session("another", parent="parent")


def test_ended_parent_is_not_resumed(tmp_path: Path) -> None:
    with load(tmp_path, store=True) as first:
        first.session("child", parent=first.session("parent"))
    with load(tmp_path, store=True) as second:
        second.session("parent").end()
    third = load(tmp_path, store=True)
    with pytest.raises(ValueError, match="no such session is open"):
        third.session("another", parent="parent")
    assert count_allowed(third.session("child"), 5) == 5


def test_state_changes_of_a_sub_agent_apply_to_its_ancestors() -> None:
    guard = Guard.load("core")
    root = guard.session("root")
    middle = guard.session("middle", parent=root)
    worker = guard.session("worker", parent=middle)
    for number in range(5):
        edit = worker.check("edit_file", {"path": "a.py", "new": str(number)})
        worker.record(edit, result="done")
        for session in (root, middle):
            tests = session.check("bash", {"command": "pytest"})
            assert tests.allowed, tests.message
            session.record(tests, result="1 failed", exit_code=1)
    tests = root.check("bash", {"command": "pytest"})  # nothing has changed since
    if tests.allowed:
        root.record(tests, result="1 failed", exit_code=1)
    assert not root.check("bash", {"command": "pytest"}).allowed


def test_state_changes_of_a_sub_agent_do_not_hide_loops_of_another() -> None:
    guard = Guard.load("core")
    root = guard.session("root")
    busy, stuck = (guard.session(name, parent=root) for name in ("busy", "stuck"))
    allowed = 0
    for number in range(8):
        edit = busy.check("edit_file", {"path": "a.py", "new": str(number)})
        busy.record(edit, result="done")
        read = stuck.check("read_file", {"path": "b.py"})
        allowed += read.allowed
        if read.allowed:
            stuck.record(read, result="as before")
    assert allowed == 4


@pytest.mark.parametrize("setting", ["", "same: error, ", "by: tool, ", "same: call, "])
def test_failures_of_sub_agents_count_for_their_parent(tmp_path: Path, setting: str) -> None:
    """Though its own calls have succeeded so far; and its success ends their streak."""
    limit = f"{{max: 2, {setting}effect: halt, count: tree}}"
    guard = load(tmp_path, f"limits: {{default: {{failures: {limit}}}}}\n")
    root = guard.session("root")
    one, two = (guard.session(name, parent=root) for name in ("one", "two"))

    def call(session: Session, error: str | None) -> bool:
        decision = session.check("read", {"path": "a"})
        if decision.allowed:
            session.record(decision, result="text", error=error)
        return decision.allowed

    for session, error in ((root, None), (one, "e"), (root, None), (two, "e"), (root, None)):
        assert call(session, error)
    assert all(call(session, "e") for session in (one, two))
    assert not call(root, None)


TREE_LIMITS = {
    "failures": "failures: {max: 3, same: call, count: tree}",
    "repeats": "repeat: {max: 3, window: all, same: call, count: tree}",
}


@pytest.mark.parametrize("store", [False, True])
@pytest.mark.parametrize("limit", ["failures", "repeats"])
@pytest.mark.parametrize("reopened", [0, 1, 4])
def test_a_sub_agent_that_is_reopened_counts_once_for_its_parent(
    tmp_path: Path, limit: str, reopened: int, store: bool
) -> None:
    guard = load(tmp_path, f"limits: {{default: {{{TREE_LIMITS[limit]}}}}}\n", store=store)
    root = guard.session("root")

    def call(session: Session) -> bool:
        decision = session.check("read", {"path": "a"})
        if decision.allowed:
            session.record(decision, error="lost")
        return decision.allowed

    child = guard.session("child", parent=root)
    assert call(child)
    for _ in range(reopened):
        child.close()
        child = guard.session("child", parent=root)
    assert [call(one) for one in (root, child, root, child)] == [True, True, False, False]


def test_a_call_that_was_in_flight_counts_for_the_parent_when_it_ends(tmp_path: Path) -> None:
    guard = load(tmp_path, f"limits: {{default: {{{TREE_LIMITS['failures']}}}}}\n", store=True)
    root = guard.session("root")
    with guard.session("child", parent=root) as child:
        started = [child.check("read", {"path": "a"}).id for _ in range(2)]
    with guard.session("child", parent=root) as child:
        for id_ in started:
            child.record(id_, error="lost")
    root.record(root.check("read", {"path": "a"}), error="lost")
    assert not root.check("read", {"path": "a"})


def test_what_a_sub_agent_changed_is_no_news_when_it_is_reopened(tmp_path: Path) -> None:
    policy = (
        "classify: {state_changing: [edit], classes: [{class: edit, tools: [edit]}]}\n"
        "limits: {default: {repeat: {max: 3, same: call_and_result}}}\n"
    )
    guard = load(tmp_path, policy, store=True)
    root = guard.session("root")
    with guard.session("child", parent=root) as child:
        child.record(child.check("edit"), result="done")
    allowed = 0
    while decision := root.check("read"):
        root.record(decision, result="same")
        with guard.session("child", parent=root):
            allowed += 1
        assert allowed < 9
    assert allowed == 3


def test_an_ended_sub_agent_begins_anew(tmp_path: Path) -> None:
    guard = load(tmp_path, f"limits: {{default: {{{TREE_LIMITS['failures']}}}}}\n", store=True)
    root = guard.session("root")
    for allowed in (True, True, True, False):
        with guard.session("child", parent=root) as child:
            pass
        child = guard.session("child", parent=root)
        decision = child.check("read")
        assert decision.allowed is allowed
        if decision:
            child.record(decision, error="lost")
        child.end()


@pytest.mark.parametrize("ends_child", [False, True])
@pytest.mark.parametrize("root", ["root", "root {}"])
def test_earlier_runs_of_a_sub_agent_do_not_count_for_a_new_parent(
    tmp_path: Path, root: str, ends_child: bool
) -> None:
    """Though it has the same id in each, and perhaps so has the parent."""
    policy = f"limits: {{default: {{{TREE_LIMITS['failures']}}}}}\n"
    for run in range(5):
        guard = load(tmp_path, policy, store=True)
        parent = guard.session(root.format(run))
        child = guard.session("child", parent=parent)
        for session in (child, parent):
            decision = session.check("read", {"path": "a"})
            assert decision.allowed, run
            session.record(decision, error="lost")
        if ends_child:
            child.end()
        parent.end()
        guard.close()


@pytest.mark.parametrize("earlier_runs", [0, 1, 2])
def test_what_a_sub_agent_did_counts_for_a_parent_that_was_resumed_without_it(
    tmp_path: Path, earlier_runs: int
) -> None:
    policy = f"limits: {{default: {{{TREE_LIMITS['failures']}}}}}\n"
    with load(tmp_path, policy, store=True) as guard:
        for _ in range(earlier_runs):
            guard.session("child", parent=guard.session("root")).end()
    for allowed in (True, True, True, False):
        with load(tmp_path, policy, store=True) as guard:
            child = guard.session("child", parent=guard.session("root"))
            decision = child.check("read", {"path": "a"})
            assert decision.allowed is allowed
            if decision:
                child.record(decision, error="lost")


def test_sessions_that_were_each_others_parents_go_on(tmp_path: Path) -> None:
    with load(tmp_path, store=True) as guard:
        first = guard.session("first")
        second = guard.session("second", parent=first)
        second.close()
        first.end()
        guard.session("first", parent=guard.session("second")).check("x")
    for name in ("first", "second"):
        with load(tmp_path, store=True) as guard:
            assert guard.session(name).check("x", {"in": name}).allowed


def test_session_without_a_parent_opens_no_session_with_an_empty_id(tmp_path: Path) -> None:
    with load(tmp_path, store=True) as guard:
        for id_ in ("", "s"):
            assert guard.session(id_).check("x").allowed
    with load(tmp_path, store=True) as guard, load(tmp_path, store=True) as other:
        assert len(guard.session("s").in_flight) == 1
        assert len(other.session("").in_flight) == 1
