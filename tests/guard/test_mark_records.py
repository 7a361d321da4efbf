"""Marks in a store: which of them a guard reads and writes, keeps, and lets expire."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from policyguard import Guard
from policyguard.guard.clock import RESOLUTION
from policyguard.store.memory.store import MemoryStore
from tests.guard.test_stored_marks import CAPS, HOUR, POLICY, Clock, run

DEPENDENT = """
policyguard: 1
name: dependent
marks:
  tested: {set: {tools: [test]}, per: project}
  built: {set: {tools: [build], when: mark.tested}, per: project}
rules: {pack: {tools: [pack], unless: mark.built}}
"""


def load(folder: Path, store: MemoryStore | Path, policy: str = POLICY, **options: Any) -> Guard:
    file = folder / "policy.yaml"
    file.write_text(policy)
    return Guard.load(file, store=store, **options)


@pytest.mark.parametrize("tested", [True, False])
def test_a_result_counts_with_what_the_store_knows(tmp_path: Path, tested: bool) -> None:
    store = tmp_path / "state" / "store.db"
    with load(tmp_path, store, DEPENDENT) as guard:
        session = guard.session("s", project="p")
        assert not tested or run(session, "test")
        begun = session.check("build", {})
    with load(tmp_path, store, DEPENDENT) as guard:
        session = guard.session("s", project="p")
        session.record(begun.id, result="done")  # before any check here
        assert session.preview("pack", {}).allowed is tested


def test_what_a_guard_has_written_itself_is_not_loaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = MemoryStore(caps=CAPS)
    assert run(load(tmp_path, store).session("other", project="p"), "test")
    session = load(tmp_path, store).session("s", agent="a", project="p")
    loaded: list[int] = []
    changes = store.marks.changes

    def note(since: int) -> Any:
        loaded.append(since)
        return changes(since)

    monkeypatch.setattr(store.marks, "changes", note)
    for tool in ("ship", "write", "rebase", "test", "merge"):
        assert run(session, tool)
    assert loaded == []


def test_as_many_agents_are_kept_as_the_bound_allows(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    store = MemoryStore(caps=CAPS)
    guard = load(tmp_path, store, POLICY + "bounds: {budget_keys: 16}\n")
    caplog.clear()
    for number in range(16):
        assert run(guard.session(f"s{number}", agent=f"a{number}"), "write")
    assert len(store.marks.list()) == 16
    assert caplog.messages == []
    assert run(guard.session("last", agent="last"), "write")
    assert len(store.marks.list()) == 16, "two fell out, for which one record stands"
    assert len(caplog.messages) == 1


@pytest.mark.parametrize(("ahead", "is_set"), [(RESOLUTION, True), (RESOLUTION + 1, False)])
def test_a_clock_that_is_hardly_ahead_is_followed(tmp_path: Path, ahead: int, is_set: bool) -> None:
    store = MemoryStore(caps=CAPS)
    clock = Clock(1_800_000_000 * 10**9)
    fast = load(tmp_path, store, clock=Clock(clock.now + ahead)).session("fast", project="p")
    slow = load(tmp_path, store, clock=clock).session("slow", project="p")
    fast.mark("fresh")
    assert run(slow, "deploy")
    clock.now += HOUR + RESOLUTION // 2
    assert slow.preview("deploy", {}).allowed is is_set
