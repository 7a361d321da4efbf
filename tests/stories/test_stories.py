"""Stories: a policy, calls and their results in order, and what the policy must say.

Each file in `tests/cases/stories/` is one policy with its stories, in the form of the language's
policy tests (POLICY_LANGUAGE §12).
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from policyguard import Decision, Guard, Session
from policyguard.compiler import alive

CASES = Path(__file__).parent.parent / "cases" / "stories"
UNITS = {"ms": 10**6, "s": 10**9, "m": 60 * 10**9, "h": 3600 * 10**9, "d": 86400 * 10**9}


def _stories() -> list[Any]:
    found = []
    for file in sorted(CASES.glob("*.yaml")):
        document = yaml.safe_load(file.read_text())
        found += [
            pytest.param(document["policy"], story, id=f"{file.stem}: {story['name']}")
            for story in document["tests"]
        ]
    assert found
    return found


class _Clock:
    def __init__(self) -> None:
        self.now = 1_772_800_000 * 10**9

    def __call__(self) -> int:
        return self.now


@pytest.mark.parametrize(("policy", "story"), _stories())
def test_story(
    policy: dict[str, Any], story: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    policy = dict(policy)
    monkeypatch.setattr(alive, "STEP", policy.pop("step", alive.STEP))
    file = tmp_path / "policy.yaml"
    file.write_text(yaml.safe_dump({"policyguard": 1, "name": "story", **policy}, sort_keys=False))
    clock = _Clock()
    guard = Guard.load(file, clock=clock)
    sessions: dict[str, Session] = {}

    known = story.get("sessions", {})

    def session(name: str) -> Session:
        if name not in sessions:  # opened when it is first used, its parent before it
            given = dict(known.get(name, story.get("session", {}) if name == "main" else {}))
            parent = given.pop("parent", None)
            sessions[name] = guard.session(
                name, parent=session(parent) if parent else None, **given
            )
        return sessions[name]

    asked: Decision | None = None
    for number, step in enumerate(story["steps"]):
        here = session(step.get("in", "main"))
        if step.get("turn"):
            here.turn()
        if "grant" in step:
            here.grant(*step["grant"], by="test")
        if step.get("approve"):
            assert asked is not None
            here.approve(asked, by="test")
        if "spend" in step:
            here.spend(**step["spend"])
        for _ in range(step.get("times", 1)):
            if "wait" in step:
                amount, unit = re.fullmatch(r"(\d+)(\w+)", step["wait"]).groups()
                clock.now += int(amount) * UNITS[unit]
            if "call" in step:
                asked = _call(here, step, f"step {number}: {step}")
        if "progress" in step:
            assert here.progress == step["progress"], f"step {number}: {step}"
            assert here.done is (step["progress"] != "progressing")


def _call(session: Session, step: dict[str, Any], where: str) -> Decision:
    ((tool, args),) = step["call"].items()
    if isinstance(args, str):
        args = {"command": args}
    extra = {name: step[name] for name in ("batch", "estimate", "hints", "tags") if name in step}
    asked = session.decide(tool, args, **extra)
    decision = session.check(tool, args, **extra)
    assert (asked.effect, asked.message) == (decision.effect, decision.message), where
    expected = step.get("expect")
    if expected is None:
        assert decision.allowed, f"{where}\n{decision.message}"
    else:
        assert decision.effect == expected, f"{where}\n{decision.message}\n{decision.errors}"
    if "by" in step:
        ids = [violation.id for violation in decision.violations]
        assert any(id_ == step["by"] or id_.endswith("/" + step["by"]) for id_ in ids), (where, ids)
    if "says" in step:
        assert step["says"] in decision.message, where
    if "would" in step:
        assert any(one.id.endswith(step["would"]) for one in decision.would), where
    if step.get("release"):
        session.release(decision)
    elif decision.allowed and not step.get("running"):
        result = dict(step.get("result", {}))
        text, ok = result.pop("text", ""), result.pop("ok", True)
        recorded = session.record(
            decision, result=text, error=None if ok else result.pop("error", text), **result
        )
        for name, value in step.get("outcome", {}).items():
            assert getattr(recorded.outcome, name) == value, where
    return decision
