"""Sub-agents: whose they are, and what becomes of them when those above them go."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from policyguard import Guard
from policyguard.guard.session import Session
from policyguard.model.event import Closed, Event
from policyguard.store.errors import SessionBusyError

FIVE = "budgets: {five: {calls: 5, per: session}}\n"


def load(folder: Path, more: str = FIVE, *, store: bool = False, **given: Any) -> Guard:
    file = folder / "policy.yaml"
    file.write_text(f"policyguard: 1\nname: parents\n{more}")
    return Guard.load(file, store=folder / "state" / "store.db" if store else None, **given)


def made(session: Session, most: int) -> int:
    """How many of so many calls are let through."""
    return sum(session.check("x", {"n": number}).allowed for number in range(most))


def test_an_ancestor_stays_as_long_as_its_sub_agents_are_used(tmp_path: Path) -> None:
    guard = load(tmp_path, FIVE + "bounds: {sessions: 3}\n")
    root = guard.session("root")
    last = guard.session("0", parent=guard.session("middle", parent=root))
    allowed = made(last, 1)
    for number in range(1, 8):
        allowed += made(guard.session(str(number), parent="middle"), 1)
    assert allowed == 5
    assert last.closed
    assert not root.closed


def test_a_sub_agent_never_takes_the_room_of_who_pays_for_it(tmp_path: Path) -> None:
    guard = load(tmp_path, FIVE + "bounds: {sessions: 1}\n")
    parent = guard.session("parent")
    for _ in range(2):
        with pytest.raises(RuntimeError, match=r"no room for a sub-agent of session `parent`"):
            guard.session("child", parent=parent)
    assert not parent.closed
    guard.session("other")
    assert parent.closed


def test_a_sub_agent_that_found_no_room_is_not_counted(tmp_path: Path) -> None:
    rule = "rules: {r: {when: session.children > 0}}\n"
    guard = load(tmp_path, rule + "bounds: {sessions: 1}\n")
    parent = guard.session("parent")
    with pytest.raises(RuntimeError, match="no room"):
        guard.session("child", parent=parent)
    assert parent.check("x").allowed


def test_a_session_that_is_over_ends_nobody_who_has_its_id_now(tmp_path: Path) -> None:
    guard = load(tmp_path)
    old = guard.session("a")
    old.end()
    child = guard.session("child", parent=guard.session("a"))
    old.end()
    assert child.check("x").allowed


def test_sub_agents_end_with_their_parent(tmp_path: Path) -> None:
    over: list[str] = []

    def listener(event: Event) -> None:
        if isinstance(event, Closed):
            over.append(event.session)

    guard = load(tmp_path, listener=listener)
    root, other = guard.session("root"), guard.session("other")
    middle = guard.session("middle", parent=root)
    leaf = guard.session("leaf", parent=middle)
    root.end()
    assert over == ["leaf", "middle", "root"]
    assert not leaf.check("x").allowed
    assert not other.closed


def test_a_parent_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    guard = load(tmp_path)
    over, nameless = guard.session("over"), guard.session("")
    over.end()
    elsewhere = load(tmp_path).session("elsewhere")
    for parent, says in (
        ("nowhere", "`parent` is `nowhere`: no such session is open"),
        ("over", "`parent` is `over`: no such session is open"),
        ("child", "`child`, which is the session itself"),
        (over, "session `over`, which is closed"),
        (elsewhere, "session `elsewhere` of another guard"),
        (nameless, "with an empty id"),
    ):
        with pytest.raises(ValueError, match=says):
            guard.session("child", parent=parent)
    guard.close()
    with pytest.raises(RuntimeError, match="the guard is closed"):
        guard.session("child", parent="nowhere")


def test_a_session_of_no_name_is_nobodys_parent_by_chance(tmp_path: Path) -> None:
    guard = load(tmp_path)
    assert made(guard.session(""), 5) == 5
    assert made(guard.session("other"), 5) == 5


@pytest.mark.parametrize("named", [True, False])
def test_a_parent_is_gone_on_with_before_its_sub_agents(tmp_path: Path, named: bool) -> None:
    with load(tmp_path, store=True) as first:
        root = first.session("root", agent="boss")
        middle = first.session("middle", parent=root)
        if not named:
            first.session("leaf", parent=middle)
        assert made(root, 3) == 3
    second = load(tmp_path, store=True)
    leaf = second.session("leaf", parent="middle" if named else None)
    assert made(leaf, 5) == 2
    assert not second.session("root").check("x").allowed


def test_a_parent_of_before_is_nobodys_parent_now(tmp_path: Path) -> None:
    with load(tmp_path, store=True) as first:
        child = first.session("child", parent=first.session("parent"))
        child.end()
        first.session("child")
    with load(tmp_path, store=True) as elsewhere, load(tmp_path, store=True) as second:
        elsewhere.session("parent")
        assert made(second.session("child"), 5) == 5
        with pytest.raises(SessionBusyError):
            second.session("another", parent="parent")


def test_a_parent_that_is_over_is_not_gone_on_with(tmp_path: Path) -> None:
    with load(tmp_path, store=True) as first:
        first.session("child", parent=first.session("parent"))
    with load(tmp_path, store=True) as second:
        second.session("parent").end()
    third = load(tmp_path, store=True)
    with pytest.raises(ValueError, match="no such session is open"):
        third.session("another", parent="parent")
    assert made(third.session("child"), 5) == 5


def test_what_a_sub_agent_changes_has_changed_for_those_above() -> None:
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


def test_a_sub_agent_that_changes_things_hides_no_loop_of_another() -> None:
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
