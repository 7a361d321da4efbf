"""A whole policy in observe mode reports what it would refuse, and refuses nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from policyguard import CallRefused, Guard, Session
from policyguard.model.event import Admitted, Refused

POLICY = """
policyguard: 1
name: observed
mode: {mode}
bounds: {{argument_bytes: 1000}}
limits:
  default: {{timeout: 30s}}
  tools: {{fetch: {{failures: {{max: 2, refuse: tool}}}}}}
budgets:
  task: {{time: 1m}}
"""


@pytest.fixture(params=["observe", "enforce"])
def mode(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def events() -> list[Any]:
    return []


@pytest.fixture
def session(tmp_path: Path, mode: str, events: list[Any]) -> Session:
    file = tmp_path / "policy.yaml"
    file.write_text(POLICY.format(mode=mode))
    return Guard.load(file, clock=lambda: 10**18, listener=events.append).session("s")


def test_observe_mode_sets_no_timeout(session: Session, mode: str) -> None:
    decision = session.check("x")
    expected = (None, "") if mode == "observe" else (30.0, "limits/default/timeout")
    assert (decision.timeout, decision.timeout_by) == expected


@pytest.mark.parametrize("args", [{"n": float("nan")}, {"n": "x" * 2000}, 5], ids=range(3))
def test_observe_mode_runs_calls_with_invalid_arguments(
    session: Session, mode: str, events: list[Any], args: Any
) -> None:
    """They are not counted, since they have no fingerprint."""
    if mode == "enforce":
        with pytest.raises(CallRefused):
            session.run("x", args, lambda: "done")
        assert [type(event) for event in events[1:]] == [Refused]
        return
    assert session.run("x", args, lambda: "done") == "done"
    decision = session.check("x", args)
    assert [one.id for one in decision.would] == ["bounds/arguments"]
    assert not decision.violations
    assert not session.record(decision, result="done").counted
    assert not any(isinstance(event, Admitted) for event in events)


def test_observe_mode_disables_no_tool(session: Session, mode: str) -> None:
    for _ in range(2):
        session.record(session.check("fetch"), error="no")
    assert list(session.disabled) == ([] if mode == "observe" else ["fetch"])
    decision = session.check("fetch")
    assert decision.allowed is (mode == "observe")
    assert [one.id for one in decision.would or decision.violations] == [
        "limits/tools:fetch/failures"
    ]


@pytest.mark.parametrize(
    "section",
    [
        "limits: {default: {repeat: {max: 1, same: call, mode: observe}}}",
        "limits: {default: {mode: observe, repeat: {max: 1, same: call}}}",
        "budgets: {few: {calls: 1, mode: observe}}",
        "rules: {few: {when: session.calls > 0, mode: observe}}",
    ],
)
def test_an_entry_that_observes_refuses_nothing(tmp_path: Path, section: str) -> None:
    def check_twice(text: str) -> Any:
        file = tmp_path / "policy.yaml"
        file.write_text(f"policyguard: 1\nname: observed\n{text}\n", "utf-8")
        session = Guard.load(file, clock=lambda: 10**18).session("s")
        session.record(session.check("x"), result="same")
        return session.check("x")

    observed = check_twice(section)
    assert observed.allowed
    assert len(observed.would) == 1
    enforced = check_twice(section.replace("observe", "enforce"))
    assert not enforced.allowed
