"""A signal handler may raise anywhere (Ctrl-C does): nothing stays open or half done."""

from __future__ import annotations

import sqlite3
import sys
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from types import FrameType

import pytest

from policyguard.store.memory.store import MemoryStore
from policyguard.store.protocol import Caps, Store
from policyguard.store.sqlite.store import SqliteStore

CAPS = Caps(constraints=10, grants=10, evidence=10, anchors=10)


class Signal(BaseException):
    """What the handler raises."""


def interrupted(act: Callable[[], object], after: int) -> bool:
    """Raise at the given point of those where Python handles signals: calls and returns from C.

    Return whether there was such a point. Python ignores what is raised in a finalizer.
    """
    left = after

    def look(frame: FrameType, event: str, _: object) -> None:
        nonlocal left
        file = frame.f_code.co_filename
        if event in ("call", "c_return") and ("policyguard/store" in file or "contextlib" in file):
            left -= 1
            if left < 0:
                sys.setprofile(None)
                raise Signal

    try:
        sys.setprofile(look)
        act()
        sys.setprofile(None)
    except Signal:
        pass
    return left < 0


def everywhere(act: Callable[[], object]) -> Iterator[None]:
    """Yield once per point in `act`, after it was interrupted there."""
    for after in count():
        if not interrupted(act, after):
            return
        yield


@pytest.fixture(params=["memory", "sqlite"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    created: Store = MemoryStore(caps=CAPS)
    if request.param == "sqlite":
        created = SqliteStore(tmp_path / "store.db", caps=CAPS, timeout=0.1)
    created.evidence.put("p", "a", b"0")
    created.evidence.put("p", "b", b"0")
    yield created
    created.close()


def check_free(store: Store) -> None:
    """Check that no other writer is kept out."""
    if isinstance(store, SqliteStore):
        other = sqlite3.connect(store.path, timeout=0, isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        other.execute("ROLLBACK")
        other.close()


def test_a_transaction_is_atomic(store: Store) -> None:
    number = count(1)

    def step() -> None:
        with store.transaction():
            value = str(next(number)).encode()
            store.evidence.put("p", "a", value)
            with store.transaction():
                store.evidence.put("p", "b", value)

    points = 0
    for _ in everywhere(step):
        check_free(store)
        assert store.evidence.get("p", "a") == store.evidence.get("p", "b")
        points += 1
    assert points > 20
    assert store.evidence.get("p", "a") == str(next(number) - 1).encode()


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_lock_is_released(store: Store) -> None:
    def step() -> None:
        store.lock_session("s").release()

    for _ in everywhere(step):
        store.lock_session("s").release()
