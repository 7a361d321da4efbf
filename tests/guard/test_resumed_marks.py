"""Marks of runs and projects in sessions that another guard resumes."""

from __future__ import annotations

from pathlib import Path

import pytest

from policyguard import Guard
from policyguard.store.memory.store import MemoryStore
from tests.guard import test_marks as marks
from tests.guard import test_stored_marks as stored_marks
from tests.guard.test_marks import run


def write_policy(folder: Path, text: str) -> Path:
    file = folder / "policy.yaml"
    file.write_text(text)
    return file


def test_what_a_sub_agent_marks_is_in_the_journal_of_its_run(tmp_path: Path) -> None:
    policy, store = write_policy(tmp_path, marks.POLICY), tmp_path / "state.db"
    with Guard.load(policy, store=store) as guard:
        child = guard.session("child", parent=guard.session("parent"))
        assert run(child, "test")
        child.mark("approved")
    with Guard.load(policy, store=store) as guard:
        parent = guard.session("parent")
        assert parent.preview("ship", {}).allowed
        child = guard.session("child")
        assert run(child, "read", path="/a")
        assert child.check("edit", {"path": "/a"}).allowed
    with Guard.load(policy, store=store) as guard:
        assert not guard.session("parent").preview("ship", {}).allowed, "the edit may have run"


def test_what_was_set_since_a_call_in_flight_cleared_it_stays_set(tmp_path: Path) -> None:
    policy, store = write_policy(tmp_path, stored_marks.POLICY), tmp_path / "state" / "store.db"
    with Guard.load(policy, store=store) as other:
        with Guard.load(policy, store=store) as guard:
            session = guard.session("s", project="p")
            assert run(session, "read", path="/x")
            assert session.check("edit", {"path": "/x"}).allowed
        with Guard.load(policy, store=store) as guard:
            beside = guard.session("t", project="p")
            assert run(beside, "test")
            assert other.session("s").in_flight
            assert beside.preview("ship", {}).allowed


def test_call_that_cleared_a_mark_is_released_under_a_policy_without_marks(tmp_path: Path) -> None:
    policy, store = write_policy(tmp_path, stored_marks.POLICY), tmp_path / "state" / "store.db"
    with Guard.load(policy, store=store) as guard:
        child = guard.session("child", parent=guard.session("parent"), agent="a")
        assert run(child, "write")
        running = child.check("rebase")
    write_policy(tmp_path, "policyguard: 1\nname: bare\n")
    with Guard.load(policy, store=store) as guard:
        child = guard.session("child")
        child.release(running.id)
        assert child.in_flight == {}


@pytest.mark.parametrize("lead", [1, 2])
def test_a_result_sets_nothing_that_another_store_has_cleared(tmp_path: Path, lead: int) -> None:
    """The call was admitted with the store that has `lead` more clearings."""
    policy, journal = write_policy(tmp_path, stored_marks.POLICY), tmp_path / "journal"
    former, present = (MemoryStore(caps=stored_marks.CAPS) for _ in range(2))
    with Guard.load(policy, store=present) as guard:
        session = guard.session("t", project="p")
        assert run(session, "read", path="/x")
        assert run(session, "edit", path="/x")
    with Guard.load(policy, store=former, journal=journal) as guard:
        session = guard.session("s", project="p")
        for _ in range(present.marks.version() + lead):
            session.mark("fresh")
        testing = session.check("test")
    assert former.marks.version() == present.marks.version() + lead
    with Guard.load(policy, store=present, journal=journal) as guard:
        session = guard.session("s", project="p")
        assert session.record(testing.id, result="passed").counted
        assert not session.preview("ship", {}).allowed


@pytest.mark.parametrize(("on_error", "allowed"), [("unset", False), ("set", True)])
def test_whether_a_call_sets_a_mark_is_in_doubt_once_its_command_is_gone(
    tmp_path: Path, on_error: str, allowed: bool
) -> None:
    policy = write_policy(
        tmp_path,
        "policyguard: 1\nname: p\nextends: [core]\n"
        f"marks: {{tested: {{set: {{commands: [pytest]}}, on_error: {on_error}}}}}\n"
        "rules: {first: {tools: [ship], unless: mark.tested}}\n",
    )
    store = tmp_path / "state.db"
    with Guard.load(policy, store=store) as guard:
        running = guard.session("s").check("bash", {"command": "ls"})
    with Guard.load(policy, store=store) as guard:
        session = guard.session("s")
        session.record(running.id, result="a")
        assert session.preview("ship", {}).allowed is allowed
