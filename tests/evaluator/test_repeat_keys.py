"""Several `repeat` limits of a level, some of them with a key: each counts for itself."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import pytest

from policyguard import Guard, Session

KEYED: dict[str, Any] = {"max": 3, "key": "string(call.args.n)"}
OTHERS: list[dict[str, Any]] = [{"max": 2}, {"max": 4, "key": "call.tool", "window": 12}]


def start(limits: list[dict[str, Any]], folder: Path) -> Session:
    file = folder / "policy.yaml"
    policy = {"policyguard": 1, "name": "x", "limits": {"default": {"repeat": limits}}}
    file.write_text(json.dumps(policy))
    return Guard.load(file).session("s")


@pytest.mark.parametrize("limits", list(itertools.permutations([KEYED, *OTHERS])))
def test_each_limit_goes_by_its_own_key(limits: list[dict[str, Any]], tmp_path: Path) -> None:
    session = start(limits, tmp_path)
    for _ in range(2):
        decision = session.check("read", {"n": 0})
        session.record(decision, result="same")
    assert not session.check("read", {"n": 0})


@pytest.mark.parametrize("limits", list(itertools.permutations([KEYED, *OTHERS], 2)))
def test_calls_leave_the_window_of_each_limit(limits: list[dict[str, Any]], tmp_path: Path) -> None:
    session = start(limits, tmp_path)
    for number in range(30):
        decision = session.check(f"tool_{number}", {"n": number})
        session.record(decision, result={"state": "pending"} if number % 3 else "same")
        assert decision.allowed
