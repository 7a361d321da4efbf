"""A store stays within its caps, however many names agents invent."""

from __future__ import annotations

import resource
from pathlib import Path

import pytest

from policyguard.store.memory.store import MemoryStore
from policyguard.store.protocol import Anchor, Caps, RevocableRecord, Store
from policyguard.store.sqlite.store import SqliteStore

CAPS = Caps(constraints=1000, grants=1000, evidence=1000, anchors=1000)


def invent(store: Store, number: int) -> None:
    name = f"{number:08}" + "x" * 100
    store.evidence.put(name, name, b"x" * 200)
    store.constraints.put(
        RevocableRecord(id=name, scope=name, key=name, state="a", updated_at=0, payload=b"x" * 200)
    )
    store.anchors.put(Anchor(name, "c" * 32, 1, "h" * 64, number))


def test_the_file_stops_growing_at_the_caps(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "store.db", caps=CAPS)
    sizes = []
    for thousand in range(4):
        with store.transaction():
            for number in range(thousand * 1000, thousand * 1000 + 1000):
                invent(store, number)
        store.close()
        sizes.append(store.path.stat().st_size)
    assert sizes[0] < 3_000_000
    assert sizes[3] < sizes[1] * 1.2
    assert len(store.constraints.list()) == len(store.evidence.list()) == 1000
    assert len(list(store.anchors.all())) == 1000


@pytest.mark.slow
def test_a_hundred_thousand_scopes_and_sessions_on_disk(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "store.db", caps=CAPS)
    for hundred in range(1000):
        with store.transaction():
            for number in range(hundred * 100, hundred * 100 + 100):
                invent(store, number)
    files = sum(file.stat().st_size for file in tmp_path.iterdir())
    assert files < 12_000_000, files


@pytest.mark.slow
def test_a_hundred_thousand_scopes_and_sessions_in_memory() -> None:
    store = MemoryStore(caps=CAPS)
    for number in range(2000):
        invent(store, number)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for number in range(100_000):
        invent(store, number)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 8 * 1024
    assert len(store.constraints.list()) == 1000


@pytest.mark.slow
def test_a_constraint_is_found_as_fast_among_very_many(tmp_path: Path) -> None:
    caps = Caps(constraints=10**6, grants=10**6, evidence=1, anchors=1)

    def count_steps(count: int) -> int:
        store = SqliteStore(tmp_path / str(count) / "store.db", caps=caps)
        with store.transaction():
            for number in range(count):
                store.constraints.put(
                    RevocableRecord(
                        id=f"c{number}",
                        scope="p",
                        key=f"k{number}",
                        state="a",
                        updated_at=0,
                        payload=b"",
                    )
                )
        store.constraints.get("c0")
        steps: list[None] = []
        connection = store._database._connection
        assert connection is not None
        connection.set_progress_handler(lambda: steps.append(None), 1)
        store.constraints.get(f"c{count // 2}")
        connection.set_progress_handler(None, 1)
        return len(steps)

    assert 0 < count_steps(100_000) < 2 * count_steps(100)
