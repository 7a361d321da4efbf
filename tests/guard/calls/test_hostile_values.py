"""Any result and any reported value is accepted, and the call is counted."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pydantic
import pytest
from click.testing import CliRunner

from policyguard import Guard
from policyguard.cli import main
from policyguard.guard.replay import ReplaySession
from policyguard.model.event import Spent

POLICY = """
policyguard: 1
name: hostile-values
limits:
  default:
    outage: {max: 2, within: 1m, cooldown: 10s}
    polling: {cooldown: 1s}
budgets: {spend: {cost: 5.0}, tokens: {tokens: 100}}
outcomes: {failed_when: outcome.duration > duration('300000h')}
"""
INVALID_NUMBERS = [math.nan, math.inf, -math.inf, 1e308, 10**400, -5]


class Unprintable:
    def __str__(self) -> str:
        raise RuntimeError("no text")

    __repr__ = __str__


class UnprintableError(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text")


class Proxy:
    """An object that can be read only in a context that is gone."""

    def __getattr__(self, name: str) -> Any:
        raise RuntimeError("working outside of request context")


class Message(pydantic.BaseModel):
    """A result that cannot be encoded as JSON, apart from its text."""

    content: str
    artifact: Any = None


class ModelLike:
    """An object with a `model_dump` method that is not a pydantic model."""

    content = "hi"

    def model_dump(self) -> dict[str, Any]:
        return {"content": []}


class BrokenDict(dict[str, Any]):
    def get(self, *_: Any) -> Any:
        raise RuntimeError("closed")


class BrokenMapping(Mapping[str, Any]):
    def __getitem__(self, name: str) -> Any:
        raise RuntimeError("closed")

    def __iter__(self) -> Iterator[str]:
        return iter(["content"])

    def __len__(self) -> int:
        return 1


def _nested(depth: int) -> Any:
    value: Any = {}
    for _ in range(depth):
        value = {"a": value}
    return value


def _cyclic() -> Any:
    value: dict[str, Any] = {}
    value["again"] = value
    return value


def _guard(folder: Path, *, durable: bool, text: str = POLICY) -> Guard:
    (folder / "policy.yaml").write_text(text)
    return Guard.load(folder / "policy.yaml", store=folder / "s" / "store.db" if durable else None)


@pytest.fixture(params=[False, True], ids=["in memory", "stored"])
def guard(tmp_path: Path, request: pytest.FixtureRequest) -> Guard:
    return _guard(tmp_path, durable=request.param)


@pytest.mark.parametrize(
    "result", [Unprintable(), [Unprintable()], _nested(3000), _cyclic()], ids=range(4)
)
def test_unprintable_result_is_recorded(guard: Guard, result: object) -> None:
    session = guard.session("s")
    recorded = session.record(session.check("t", {}), result=result)
    assert recorded.outcome.ok
    assert len(recorded.outcome.text) < 100_000
    assert session.check("t", {"n": 1}).allowed


HOSTILE_RESULTS = [
    Proxy(),
    Message(content="x", artifact=object()),
    ModelLike(),
    BrokenDict(content=[]),
    BrokenMapping(),
]


@pytest.mark.parametrize("result", HOSTILE_RESULTS, ids=lambda result: type(result).__name__)
def test_result_that_raises_when_read_is_returned_and_recorded(
    guard: Guard, result: object
) -> None:
    session = guard.session("s")
    assert session.run("t", {}, lambda: result) is result
    decision = session.check("t", {"n": 1})
    recorded = session.record(decision, result=result)
    assert (recorded.counted, recorded.outcome.ok, recorded.errors) == (True, True, ())
    assert recorded.outcome.text


@pytest.mark.parametrize("result", HOSTILE_RESULTS, ids=lambda result: type(result).__name__)
def test_result_that_raises_when_read_carries_no_advice(tmp_path: Path, result: object) -> None:
    text = "policyguard: 1\nname: x\nrules: {note: {when: 'true', effect: advise, message: slow}}\n"
    session = _guard(tmp_path, durable=False, text=text).session("s")
    recorded = session.record(session.check("t", {}), result=result)
    assert recorded.result is result
    assert "slow" in recorded.advice


def test_unprintable_exception_is_recorded_and_raised(guard: Guard) -> None:
    session = guard.session("s")

    def fail() -> None:
        raise UnprintableError

    with pytest.raises(UnprintableError):
        session.run("t", {}, fail)
    assert session.check("t", {"n": 1}).allowed
    recorded = session.record(session.check("t", {"n": 2}), error=UnprintableError())
    assert recorded.outcome.error == "UnprintableError: <UnprintableError>"


@pytest.mark.parametrize("field", ["retry_after", "duration"])
@pytest.mark.parametrize("seconds", INVALID_NUMBERS)
@pytest.mark.parametrize("failing", [False, True])
def test_invalid_times_are_accepted(
    guard: Guard, field: str, seconds: float, failing: bool
) -> None:
    session = guard.session("s")
    details: dict[str, Any] = {"error": "503 Service Unavailable"} if failing else {"result": "yes"}
    for _ in range(3):
        decision = session.check("t", {})
        if decision.allowed:
            session.record(decision, **{field: seconds}, **details)
    outcome = session.record(session.check("u", {}), result="x", duration=seconds).outcome
    assert outcome.ok is not (seconds > 1e10)


@pytest.mark.parametrize("field", ["cost", "tokens"])
@pytest.mark.parametrize("amount", INVALID_NUMBERS)
def test_invalid_amount_uses_up_the_budget(guard: Guard, field: str, amount: float) -> None:
    session = guard.session("s")
    recorded = session.record(session.check("t", {}), result="x", **{field: amount})
    assert [error.error for error in recorded.errors] == [
        "the amount is not a number from 0 to 1e+18"
    ]
    assert not session.check("t", {"n": 1}).allowed


@pytest.mark.parametrize("amount", INVALID_NUMBERS)
def test_rule_on_cost_fires_after_an_invalid_amount(tmp_path: Path, amount: float) -> None:
    rules = "policyguard: 1\nname: x\nrules: {dear: {when: session.cost > 5.0, effect: block}}\n"
    session = _guard(tmp_path, durable=False, text=rules).session("s")
    session.record(session.check("t", {}), result="x", cost=amount)
    assert session.check("t", {}).violations[0].id == "rules/dear"


@pytest.mark.parametrize("amount", [*INVALID_NUMBERS, "5", None])
def test_spend_and_grant_reject_invalid_amounts(guard: Guard, amount: Any) -> None:
    session = guard.session("s")
    is_number = isinstance(amount, (int, float))
    error_type = ValueError if is_number else TypeError
    message = r"not a number from 0 to 1e\+18" if is_number else "of type `.*`, not a number"
    with pytest.raises(error_type, match=f"`cost` is .*, {message}"):
        session.spend(cost=amount)
    with pytest.raises(error_type, match=f"`tokens` is .*, {message}"):
        session.spend(tokens=amount)
    if amount is not None:
        with pytest.raises(error_type, match=f"`amount` is .*, {message}"):
            session.grant("spend", amount, by="ana")
    assert session.check("t", {}).allowed


@pytest.mark.parametrize("amount", INVALID_NUMBERS)
def test_replayed_invalid_amount_uses_up_the_budget(guard: Guard, amount: float) -> None:
    session = guard.session("s")
    ReplaySession(session).apply(Spent("s", cost=amount))
    assert session.check("t", {}).violations[0].id == "budgets/spend"


@pytest.mark.parametrize("amount", INVALID_NUMBERS[:5])
def test_invalid_score_is_ignored(guard: Guard, amount: float) -> None:
    session = guard.session("s")
    session.record(session.check("t", {}), result="x", score=amount)
    assert session.progress == "progressing"


def test_run_with_huge_numbers_is_replayed(tmp_path: Path) -> None:
    (tmp_path / "policy.yaml").write_text(POLICY)
    event = '{"session":"s","at":%d,"event":'
    lines = [
        event % 1 + '"started"}',
        event % 2 + '"spent","tokens":1,"cost":1e308}',
        event % 3 + '"granted","budget":"budgets/spend","amount":1e308}',
        event % 4 + '"admitted","call":"a","tool":"t","args":{}}',
        event % 5 + '"completed","call":"a","ok":false,"text":"503","duration":1e300,'
        '"retry_after":1e308,"cost":-1e308,"score":1e308}',
        event % 6 + '"admitted","call":"b","tool":"t","args":{}}',
        event % 7 + '"completed","call":"b","ok":true,"text":"fine","cost":1e300}',
    ]
    (tmp_path / "trace.jsonl").write_text("\n".join(lines) + "\n")
    command = ["simulate", str(tmp_path), "--policy", str(tmp_path / "policy.yaml")]
    result = CliRunner().invoke(main, command, catch_exceptions=False)
    assert result.exit_code == 0, result.output
    assert "spend" in result.output
