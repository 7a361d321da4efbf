"""No file raises, and the events of a session keep their rules."""

from __future__ import annotations

import json
import os
import random
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from policyguard.journal.format import decode, encode
from policyguard.model.event import (
    Admitted,
    Completed,
    Event,
    SessionEnded,
    SessionStarted,
    TurnStarted,
)
from policyguard.traces import Item, Reader, Skipped
from tests.examples import examples

HERE = Path(__file__).parent
ROOT = Path(os.environ.get("POLICYGUARD_TRACES", HERE.parents[2] / "shared" / "traces"))
PINNED = json.loads((HERE / "recordings.json").read_text(encoding="utf-8"))
RECORDINGS = [ROOT / name for name in PINNED if (ROOT / name).is_file()]
CASES = sorted(path for path in (HERE / "cases").rglob("input/**/*") if path.is_file())
SMALL = 70_000
"""Bytes; damage to larger files tests the same, but slower."""

FILES = CASES + [path for path in RECORDINGS if path.stat().st_size < SMALL]
ODD: list[Any] = [None, True, 0, -1, 2**70, 10**400, 1e300, "", "x", "\ud83d", [], {}, [[]], [None]]


def check(items: Iterable[Item]) -> None:
    """Check the rules of the event model and `policyguard.traces.session_builder`."""
    sessions: dict[str, list[Event]] = {}
    for item in items:
        if isinstance(item, Skipped):
            assert item.reason
            assert "\n" not in item.reason
        else:
            assert decode(encode(item)) == item
            sessions.setdefault(item.session, []).append(item)
    for events in sessions.values():
        check_session(events)


def check_session(events: list[Event]) -> None:
    assert isinstance(events[0], SessionStarted)
    assert isinstance(events[-1], SessionEnded)
    assert sum(isinstance(event, SessionStarted | SessionEnded) for event in events) == 2
    open_calls: set[str] = set()
    batches: dict[str, int] = {}
    calls: set[str] = set()
    recorded: set[bool] = set()
    turns = 0
    for event in events:
        match event:
            case TurnStarted():
                turns += 1
            case Admitted():
                assert turns
                assert event.call not in calls
                recorded.add(event.args is not None)
                calls.add(event.call)
                open_calls.add(event.call)
                batches[event.batch] = batches.get(event.batch, 0) + 1
            case Completed():
                open_calls.remove(event.call)
                if event.state == "cancelled":
                    assert event.ok is None
                else:
                    assert (event.ok is None) == (event.provenance == "unknown")
    assert len(recorded) < 2, "the arguments of some calls are recorded, and of some are not"
    batches.pop("", None)
    assert all(size > 1 for size in batches.values())


@pytest.mark.parametrize("path", CASES + RECORDINGS, ids=lambda path: path.name)
def test_events_keep_the_rules(path: Path) -> None:
    trace = Reader().read(path)
    if trace.format != "policyguard":
        check(trace)


def mutated(data: bytes, seed: int) -> bytes:
    """Change or cut bytes, cut off the end, or swap values for odd ones."""
    rng = random.Random(seed)  # noqa: S311  no secret is made of it
    kind = rng.randrange(4)
    if kind == 0:
        return data[: rng.randrange(len(data))]
    if kind == 1:
        changed = bytearray(data)
        for _ in range(rng.choice((1, 3, 20))):
            start = rng.randrange(len(changed))
            changed[start : start + rng.randrange(30)] = bytes([rng.randrange(256)])
        return bytes(changed)
    try:
        return _dumped(_swapped(json.loads(data), rng))
    except ValueError:
        return b"\n".join(_swapped_line(line, rng) for line in data.split(b"\n"))


def _swapped_line(line: bytes, rng: random.Random) -> bytes:
    try:
        return _dumped(_swapped(json.loads(line), rng))
    except ValueError:
        return line


def _dumped(value: Any) -> bytes:
    return json.dumps(value).encode()


def _swapped(value: Any, rng: random.Random) -> Any:
    """Replace one to five parts of the value, at any depth."""
    for _ in range(rng.randrange(1, 6)):
        slots = list(_iter_slots(value))
        if not slots:
            return rng.choice(ODD)
        holder, key = rng.choice(slots)
        holder[key] = json.loads(json.dumps(rng.choice(ODD)))
    return value


def _iter_slots(value: Any) -> Iterator[tuple[Any, Any]]:
    stack = [value]
    while stack:
        holder = stack.pop()
        if isinstance(holder, list | dict):
            keys = range(len(holder)) if isinstance(holder, list) else list(holder)
            yield from ((holder, key) for key in keys)
            stack += [holder[key] for key in keys]


@settings(
    deadline=None,
    max_examples=examples(300),
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(path=st.sampled_from(FILES), seed=st.integers(0, 2**32))
def test_damaged_files_never_raise(tmp_path: Path, path: Path, seed: int) -> None:
    data = path.read_bytes()
    damaged = tmp_path / path.name
    damaged.write_bytes(mutated(data, seed) if data else data)
    trace = Reader().read(damaged)
    if trace.format == "policyguard":
        list(trace)
    else:
        check(trace)
