"""How often, and how much, a guard reads of the constraints in its store."""

from __future__ import annotations

from pathlib import Path

import pytest

from policyguard import Guard
from policyguard.store.memory.store import MemoryStore
from tests.guard.learning.test_constraint_sync import CAPS, POLICY, _fail


def load(folder: Path, store: MemoryStore) -> Guard:
    file = folder / "policy.yaml"
    file.write_text(POLICY.replace("CORROBORATE", "1"))
    return Guard.load(file, store=store)


def test_only_what_others_have_changed_since_is_loaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, loaded = MemoryStore(caps=CAPS), []
    one, other = load(tmp_path, store), load(tmp_path, store)
    changes = store.constraints.changes
    monkeypatch.setattr(
        store.constraints, "changes", lambda since: (loaded.append(since), changes(since))[1]
    )
    assert _fail(one, "a")
    for _ in range(3):
        assert len(other.constraints()) == 1
    assert len(loaded) == 1


def test_a_check_asks_the_store_once_a_second_at_most(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, polls = MemoryStore(caps=CAPS), []
    session = load(tmp_path, store).session("s")
    version = store.constraints.version
    monkeypatch.setattr(store.constraints, "version", lambda: (polls.append(1), version())[1])
    for number in range(30):
        assert session.check("build", {"target": number}).allowed
    assert len(polls) < 15


def test_each_poll_makes_what_is_known_current(tmp_path: Path) -> None:
    guard = load(tmp_path, MemoryStore(caps=CAPS))
    sync = guard._constraint_sync
    assert sync is not None
    loaded_at = sync.current_at
    assert guard.constraints() == ()
    assert sync.current_at > loaded_at
