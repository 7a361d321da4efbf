"""Constraints as stores keep them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from policyguard import Guard
from policyguard.model.constraint import Constraint
from policyguard.store.constraint_records import decode_constraint, to_record
from policyguard.store.memory.store import MemoryStore
from policyguard.store.protocol import Caps

SECOND = 10**9
NOW = 10**18


def constraint(**times: Any) -> Constraint:
    return Constraint(
        id="kaaaaaaaaaaaa",
        kind="banned_strategy",
        learn="",
        scope="project:p",
        key="call:x",
        signature="",
        tool="x",
        count=3,
        **times,
    )


@pytest.mark.parametrize(
    ("at", "times", "updated_at"),
    [
        (5, {"confirmed_at": 3}, 5),
        (None, {"confirmed_at": 3}, 3),
        (None, {}, 0),
    ],
)
def test_a_record_has_the_latest_time_that_is_known(
    at: int | None, times: Any, updated_at: int
) -> None:
    record = to_record(constraint(**times), at)
    assert record.updated_at == updated_at
    assert decode_constraint(record, Path("s")) == constraint(**times)


@pytest.mark.parametrize(
    ("learned_at", "confirmed_at", "found"),
    [
        (NOW - 9 * SECOND, NOW - 5 * SECOND, (NOW - 9 * SECOND, NOW - 5 * SECOND)),
        (NOW - 9 * SECOND, NOW + 5 * SECOND, (NOW - 9 * SECOND, NOW)),
        (NOW + 3 * SECOND, NOW + 5 * SECOND, (NOW, NOW)),
        (None, NOW + 5 * SECOND, (NOW, NOW)),
        (None, None, (None, None)),
    ],
)
def test_what_was_confirmed_under_a_clock_ahead_fades_from_now_on(
    tmp_path: Path,
    learned_at: int | None,
    confirmed_at: int | None,
    found: tuple[int | None, int | None],
) -> None:
    policy = tmp_path / "p.yaml"
    policy.write_text("policyguard: 1\nname: p\nlearn: {scope: project}\n")
    store = MemoryStore(caps=Caps(constraints=9, grants=9, evidence=9, anchors=9))
    kept = constraint(learned_at=learned_at, confirmed_at=confirmed_at)
    assert store.constraints.put(to_record(kept, NOW))
    with Guard.load(policy, store=store, clock=lambda: NOW) as guard:
        (seen,) = guard.constraints()
    assert (seen.learned_at, seen.confirmed_at) == found
