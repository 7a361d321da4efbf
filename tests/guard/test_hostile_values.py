"""What a tool gives, and what is told of it, may be anything: the call is counted all the same."""

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
name: strangers
limits:
  default:
    outage: {max: 2, within: 1m, cooldown: 10s}
    polling: {cooldown: 1s}
budgets: {spend: {cost: 5.0}, tokens: {tokens: 100}}
outcomes: {failed_when: outcome.duration > duration('300000h')}
"""
BEYOND = [math.nan, math.inf, -math.inf, 1e308, 10**400, -5]


class Mute:
    def __str__(self) -> str:
        raise RuntimeError("no text")

    __repr__ = __str__


class MuteError(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text")


class Proxy:
    """Something that is looked up when it is used, and cannot be now."""

    def __getattr__(self, name: str) -> Any:
        raise RuntimeError("working outside of request context")


class Message(pydantic.BaseModel):
    """A result with what no JSON can hold beside its text."""

    content: str
    artifact: Any = None


class Dumping:
    """Something with a method of its own that is called as a model's."""

    content = "hi"

    def model_dump(self) -> dict[str, Any]:
        return {"content": []}


class Closed(dict[str, Any]):
    def get(self, *_: Any) -> Any:
        raise RuntimeError("closed")


class Lazy(Mapping[str, Any]):
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


def _circle() -> Any:
    value: dict[str, Any] = {}
    value["again"] = value
    return value


def _guard(folder: Path, *, stored: bool, text: str = POLICY) -> Guard:
    (folder / "policy.yaml").write_text(text)
    return Guard.load(folder / "policy.yaml", store=folder / "s" / "store.db" if stored else None)


@pytest.fixture(params=[False, True], ids=["in memory", "stored"])
def guard(tmp_path: Path, request: pytest.FixtureRequest) -> Guard:
    return _guard(tmp_path, stored=request.param)


@pytest.mark.parametrize("result", [Mute(), [Mute()], _nested(3000), _circle()], ids=range(4))
def test_a_result_without_a_text_is_recorded(guard: Guard, result: object) -> None:
    session = guard.session("s")
    recorded = session.record(session.check("t", {}), result=result)
    assert recorded.outcome.ok
    assert len(recorded.outcome.text) < 100_000
    assert session.check("t", {"n": 1}).allowed


ODD = [Proxy(), Message(content="x", artifact=object()), Dumping(), Closed(content=[]), Lazy()]


@pytest.mark.parametrize("result", ODD, ids=lambda odd: type(odd).__name__)
def test_a_result_that_raises_when_it_is_read_comes_back_and_is_recorded(
    guard: Guard, result: object
) -> None:
    session = guard.session("s")
    assert session.run("t", {}, lambda: result) is result
    decision = session.check("t", {"n": 1})
    recorded = session.record(decision, result=result)
    assert (recorded.counted, recorded.outcome.ok, recorded.errors) == (True, True, ())
    assert recorded.outcome.text


def test_an_exception_without_a_text_is_recorded_and_raised_as_it_is(guard: Guard) -> None:
    session = guard.session("s")

    def fails() -> None:
        raise MuteError

    with pytest.raises(MuteError):
        session.run("t", {}, fails)
    assert session.check("t", {"n": 1}).allowed
    recorded = session.record(session.check("t", {"n": 2}), error=MuteError())
    assert recorded.outcome.error == "MuteError: <MuteError>"


@pytest.mark.parametrize("field", ["retry_after", "duration"])
@pytest.mark.parametrize("seconds", BEYOND)
@pytest.mark.parametrize("failing", [False, True])
def test_times_beyond_all_measure(guard: Guard, field: str, seconds: float, failing: bool) -> None:
    session = guard.session("s")
    said: dict[str, Any] = {"error": "503 Service Unavailable"} if failing else {"result": "yes"}
    for _ in range(3):
        decision = session.check("t", {})
        if decision.allowed:
            session.record(decision, **{field: seconds}, **said)
    outcome = session.record(session.check("u", {}), result="x", duration=seconds).outcome
    assert outcome.ok is not (seconds > 1e10)


@pytest.mark.parametrize("field", ["cost", "tokens"])
@pytest.mark.parametrize("amount", BEYOND)
def test_what_cannot_be_reckoned_has_used_everything(
    guard: Guard, field: str, amount: float
) -> None:
    session = guard.session("s")
    recorded = session.record(session.check("t", {}), result="x", **{field: amount})
    assert [fault.error for fault in recorded.errors] == [
        "the amount is not a finite number of at least 0"
    ]
    assert not session.check("t", {"n": 1}).allowed


@pytest.mark.parametrize("amount", BEYOND)
def test_a_rule_over_what_was_used_sees_more_than_it_allows(tmp_path: Path, amount: float) -> None:
    rules = "policyguard: 1\nname: x\nrules: {dear: {when: session.cost > 5.0, effect: block}}\n"
    session = _guard(tmp_path, stored=False, text=rules).session("s")
    session.record(session.check("t", {}), result="x", cost=amount)
    assert session.check("t", {}).violations[0].id == "rules/dear"


@pytest.mark.parametrize("amount", [*BEYOND, "5", None])
def test_who_spends_or_grants_gives_a_number(guard: Guard, amount: Any) -> None:
    session = guard.session("s")
    number = isinstance(amount, (int, float))
    wrong = ValueError if number else TypeError
    reason = "no finite number of at least 0" if number else "of type `.*`, not a number"
    with pytest.raises(wrong, match=f"`cost` is .*, {reason}"):
        session.spend(cost=amount)
    with pytest.raises(wrong, match=f"`tokens` is .*, {reason}"):
        session.spend(tokens=amount)
    if amount is not None:
        with pytest.raises(wrong, match=f"`amount` is .*, {reason}"):
            session.grant("spend", amount, by="ana")
    assert session.check("t", {}).allowed


@pytest.mark.parametrize("amount", BEYOND)
def test_a_recorded_spending_that_cannot_be_reckoned_has_used_everything(
    guard: Guard, amount: float
) -> None:
    session = guard.session("s")
    ReplaySession(session).apply(Spent("s", cost=amount))
    assert session.check("t", {}).violations[0].id == "budgets/spend"


@pytest.mark.parametrize("amount", BEYOND[:5])
def test_a_score_beyond_all_measure_is_none(guard: Guard, amount: float) -> None:
    session = guard.session("s")
    session.record(session.check("t", {}), result="x", score=amount)
    assert session.progress == "progressing"


def test_a_recorded_run_with_such_numbers_is_replayed(tmp_path: Path) -> None:
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
    told = ["simulate", str(tmp_path), "--policy", str(tmp_path / "policy.yaml")]
    result = CliRunner().invoke(main, told, catch_exceptions=False)
    assert result.exit_code == 0, result.output
    assert "spend" in result.output
