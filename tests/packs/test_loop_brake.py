"""The pack `loop-brake` trips like the original supervisor (SYSTEMS, §2)."""

from __future__ import annotations

from typing import NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from policyguard import Guard, Session
from policyguard.compiler import CompiledPolicy, compile_policy

FLAG = "ai.nimblebrain/non-advancing"
INFRA = "ai.nimblebrain/infra-error"


class Step(NamedTuple):
    """A call of the tool and its result."""

    query: str
    content: str
    failed: bool = False
    flagged: bool = False
    infra: bool = False


class Supervisor:
    """The original in its current version, for one tool, until it trips."""

    def __init__(self) -> None:
        self.last: object = None
        self.same = 0
        self.flagged = 0
        self.content = ""

    def trips(self, step: Step) -> bool:
        if step.infra:
            return False
        content = step.content[:512]
        query = None if step.failed else " ".join(step.query.casefold().split())
        fingerprint = (step.failed, content, query)
        self.same = self.same + 1 if fingerprint == self.last else 1
        self.last = fingerprint
        if step.flagged:
            self.flagged, self.content = self.flagged + 1, content
        elif not step.failed and content != self.content:
            self.flagged = 0
        return self.same >= 3 or self.flagged >= 6


COMPILED = compile_policy("loop-brake")


def _session(compiled: CompiledPolicy = COMPILED) -> Session:
    return Guard(compiled, clock=lambda: 1_772_800_000 * 10**9).session("s")


def _make(session: Session, step: Step, tool: str = "search") -> None:
    decision = session.check(tool, {"query": step.query})
    assert decision.allowed, decision.message
    session.record(
        decision,
        result=None if step.failed else step.content,
        error=step.content if step.failed else None,
        meta={key: True for key, given in ((FLAG, step.flagged), (INFRA, step.infra)) if given},
    )


LONG = "x" * 512
STEPS = st.lists(
    st.builds(
        Step,
        st.sampled_from(["crm", " CRM\n", "erp"]),
        st.sampled_from(["nothing", "no match", LONG + "a", LONG + "b"]),
        failed=st.booleans(),
        flagged=st.booleans(),
        infra=st.sampled_from([False, False, False, True]),
    ).filter(lambda step: not step.failed or len(step.content) < 512),  # of errors, more counts
    max_size=40,
)


@settings(deadline=None)  # cores are shared
@given(STEPS)
def test_it_trips_where_the_supervisor_does(steps: list[Step]) -> None:
    session, supervisor = _session(), Supervisor()
    for number, step in enumerate(steps):
        _make(session, step)
        trips = supervisor.trips(step)
        assert bool(session.disabled) is trips, (number, step)
        if trips:
            assert not session.check("search", {"query": f"another {number}"}).allowed
            return


@pytest.mark.parametrize("length", [512, 511])
def test_the_first_512_characters_of_a_result_count(length: int) -> None:
    session = _session()
    for number in range(3):
        _make(session, Step("crm", "x" * length + str(number)))
    assert bool(session.disabled) is (length == 512)


def test_what_is_off_is_listed_with_the_reason() -> None:
    session = _session()
    for number in range(6):
        _make(session, Step(str(number), f"nothing for {number}", flagged=True))
    _make(session, Step("a", "hello"), tool="read")
    assert session.disabled == {}
    for _ in range(3):
        _make(session, Step("b", "same"), tool="look")
    (told,) = session.disabled.values()
    assert list(session.disabled) == ["look"]
    assert "made 3 times and its result has not changed" in told
    assert "limits/default/repeat" in told


def test_an_operator_may_say_how_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOOP_BRAKE_SAME", "2")
    monkeypatch.setenv("LOOP_BRAKE_NOT_ADVANCING", "3")
    compiled = compile_policy("loop-brake")
    session = _session(compiled)
    for number in range(3):
        assert not session.disabled
        _make(session, Step(str(number), f"nothing for {number}", flagged=True))
    assert session.disabled
    session = _session(compiled)
    _make(session, Step("a", "same"))
    assert not session.disabled
    _make(session, Step("a", "same"))
    assert session.disabled
