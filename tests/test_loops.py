"""Loops in disguise are refused early, and work that looks like them is not."""

from __future__ import annotations

import base64
import random
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml

from policyguard import Decision, Effect, Guard

FOLDER = Path(__file__).parent / "cases" / "loops"
MAX_CALLS = 20
"""Calls after which a loop is to have been refused."""
LEGITIMATE_CALLS = 60


class Step(NamedTuple):
    tool: str
    args: dict[str, Any]
    result: str
    ok: bool
    begins_turn: bool


def load(name: str) -> list[dict[str, Any]]:
    cases: list[dict[str, Any]] = yaml.safe_load((FOLDER / name).read_text())
    return cases


def steps(case: dict[str, Any], count: int) -> Iterator[Step]:
    """Yield the calls of a case, with its placeholders filled in."""
    values = Values(case["name"])
    for index in range(count):
        calls = case["calls"]
        begins_round = index % len(calls) == 0
        call = values.random.choice(calls) if "order" in case else calls[index % len(calls)]
        values.begin(index + 1, index // len(calls) + 1)
        values.shuffle(call.get("parts", []))
        (tool, args) = next((k, v) for k, v in call.items() if k not in ("result", "ok", "parts"))
        if isinstance(args, str):
            args = {"command": args}
        yield Step(
            values.fill(tool),
            values.fill(args),
            values.fill(call["result"]),
            call.get("ok", True),
            bool(case.get("turn")) and begins_round,
        )


class Values:
    """What the placeholders stand for in one call."""

    def __init__(self, seed: str) -> None:
        self.random = random.Random(seed)  # noqa: S311 - values of a test
        self._known: dict[str, str] = {}

    def begin(self, number: int, round_: int) -> None:
        letters = "bcdfghjklmnpqrstvwxz"
        words = ["".join(self.random.choices(letters, k=7)) for _ in range(number)]
        clock = f"{number % 24:02}:{number * 7 % 60:02}:{number * 13 % 60:02}"
        seconds = self.random.uniform(0.1, 9)
        self._known = {
            "n": str(number),
            "round": str(round_),
            "left": str(max(0, 90 - number)),
            "word": words[-1],
            "word36": "".join(self.random.choices("abcdefghijklmnopqrstuvwxyz0123456789", k=14)),
            "id": str(uuid.UUID(int=self.random.getrandbits(128), version=4)),
            "hex": f"{self.random.getrandbits(40):010x}",
            "time": f"2026-03-{1 + number % 28:02}T{clock}.{number:03}Z",
            "day": f"{1 + number % 28:02}",
            "clock": clock,
            "pid": str(self.random.randrange(1000, 60000)),
            "port": str(self.random.randrange(30000, 60000)),
            "seconds": f"{seconds:.2f}",
            "temp": "".join(self.random.choices(letters + "0123456789_", k=8)),
            "base64": base64.b64encode(self.random.randbytes(18)).decode(),
            "log": "".join(f"line {i}: {w}\n" for i, w in enumerate(words)),
            "spaces": " " * number,
            "dots": "./" * (number % 4),
        }

    def shuffle(self, parts: list[str]) -> None:
        """Let `lines` and `items` stand for some parts in any order."""
        shuffled = self.random.sample(parts, len(parts))
        self._known = {"lines": "\n".join(shuffled), "items": ", ".join(shuffled)} | self._known

    def fill(self, value: Any) -> Any:
        if isinstance(value, dict):
            return {self.fill(key): self.fill(item) for key, item in value.items()}
        if isinstance(value, list):
            return [self.fill(item) for item in value]
        if isinstance(value, str):
            for name, text in self._known.items():
                value = value.replace(f"{{{name}}}", text)
        return value


def run(case: dict[str, Any], count: int) -> Iterator[Decision]:
    """Yield the decisions on the calls of a case, up to the first refusal."""
    with Guard.load("core") as guard, guard.session("s") as session:
        for step in steps(case, count):
            if step.begins_turn:
                session.turn()
            decision = session.check(step.tool, step.args)
            yield decision
            if not decision:
                return
            reported = {"result": step.result} if step.ok else {"error": step.result}
            session.record(decision, **reported)


@pytest.mark.parametrize(
    "case", [pytest.param(case, id=case["name"]) for case in load("disguised.yaml")]
)
def test_loop_in_disguise_is_refused(case: dict[str, Any]) -> None:
    decisions = list(run(case, case.get("times", MAX_CALLS)))
    assert not decisions[-1], f"{len(decisions)} calls run"
    assert any(decision.violations for decision in decisions[:-1]), "refused without advice first"


@pytest.mark.parametrize(
    "case", [pytest.param(case, id=case["name"]) for case in load("legitimate.yaml")]
)
def test_work_that_looks_like_a_loop_goes_on(case: dict[str, Any]) -> None:
    count = case.get("times", LEGITIMATE_CALLS // len(case["calls"])) * len(case["calls"])
    decisions = list(run(case, count))
    assert decisions[-1], decisions[-1].message


def test_two_agents_that_hand_a_task_to_and_fro_are_stopped() -> None:
    """Each in a turn of its own: what one session counts in a turn stays at one."""
    guard = Guard.load("core")
    guard.session("root")
    agents = [guard.session(name, parent="root", agent=name) for name in ("writer", "editor")]
    effects = []
    for number in range(20):
        session, other = agents[number % 2], agents[1 - number % 2]
        session.turn()
        task = {"to": other.id, "task": "make it shorter"}
        decision = session.check("delegate_task", task)
        effects.append(decision.effect)
        if decision.allowed:
            session.record(decision, result=f"accepted by {other.id} as {number:x}")
    first = effects.index(Effect.BLOCK)
    assert Effect.ADVISE in effects[:first]


def test_different_tasks_are_handed_on() -> None:
    guard = Guard.load("core")
    guard.session("root")
    agents = [guard.session(name, parent="root", agent=name) for name in ("writer", "editor")]
    for number in range(40):
        session = agents[number % 2]
        decision = session.check("delegate_task", {"task": f"chapter {number // 2}"})
        assert decision.effect is Effect.ALLOW
        session.record(decision, result="accepted")
