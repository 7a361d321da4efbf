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
    """A call of a tool and its result."""

    query: str
    content: str
    failed: bool = False
    flagged: bool = False
    infra: bool = False
    tool: str = "search"


class Supervisor:
    """The original in its current version, for one tool. It judges a call once it has run."""

    def __init__(self) -> None:
        self.last: object = None
        self.same = 0
        self.flagged = 0
        self.tripped_by: str | None = None

    @property
    def is_tripped(self) -> bool:
        return self.tripped_by is not None

    def observe(self, step: Step) -> None:
        content = step.content[:512]
        is_advancing = not (step.failed or step.flagged or step.infra)
        if self.is_tripped:
            if is_advancing and content != self.tripped_by:
                self.tripped_by, self.flagged = None, 0
                self.last, self.same = self._fingerprint(step), 1
            return
        if step.infra:
            return
        if step.flagged:
            self.flagged += 1
        elif is_advancing:
            self.flagged = 0
        fingerprint = self._fingerprint(step)
        self.same = self.same + 1 if fingerprint == self.last else 1
        self.last = fingerprint
        if self.same >= 3 or self.flagged >= 6:
            self.tripped_by = content

    def _fingerprint(self, step: Step) -> object:
        query = " ".join(step.query.casefold().split())
        if step.flagged:
            return ("flagged", query)
        return (step.failed, step.content[:512], None if step.failed else query)


COMPILED = compile_policy("loop-brake")


def _session(compiled: CompiledPolicy = COMPILED) -> Session:
    return Guard(compiled, clock=lambda: 1_772_800_000 * 10**9).session("s")


def _make(session: Session, step: Step) -> bool:
    """Make a call, unless it is refused."""
    decision = session.check(step.tool, {"query": step.query})
    if decision.allowed:
        session.record(
            decision,
            result=None if step.failed else step.content,
            error=step.content if step.failed else None,
            meta={key: True for key, given in ((FLAG, step.flagged), (INFRA, step.infra)) if given},
        )
    return decision.allowed


LONG = "x" * 512
STEPS = st.lists(
    st.builds(
        Step,
        st.sampled_from(["crm", " CRM\n", "erp", "hr"]),
        st.sampled_from(["nothing", "no match 1", "no match 2", LONG + "a", LONG + "b"]),
        failed=st.booleans(),
        flagged=st.booleans(),
        infra=st.sampled_from([False, False, False, True]),
        tool=st.sampled_from(["search", "search", "look"]),
    ).filter(lambda step: not (step.failed and step.flagged)),
    max_size=40,
)


@settings(deadline=None)  # cores are shared
@given(STEPS)
def test_a_tool_is_off_where_the_supervisor_says_so(steps: list[Step]) -> None:
    session = _session()
    supervisors = {"search": Supervisor(), "look": Supervisor()}
    for number, step in enumerate(steps):
        supervisor = supervisors[step.tool]
        if _make(session, step):
            supervisor.observe(step)
        else:
            assert supervisor.is_tripped, (number, step)
        off = {tool for tool, one in supervisors.items() if one.is_tripped}
        assert set(session.disabled) == off, (number, step)


@given(STEPS)
def test_a_tool_that_is_off_refuses_what_it_has_tried(steps: list[Step]) -> None:
    session = _session()
    for step in steps:
        was_off = step.tool in session.disabled
        ran = _make(session, step)
        if was_off and ran and step.tool in session.disabled and not step.infra:
            assert not _make(session, step), step


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
    _make(session, Step("a", "hello", tool="read"))
    for _ in range(3):
        _make(session, Step("b", "same", tool="look"))
    search, look = session.disabled.items()
    assert search[0] == "search"
    assert "made no progress 6 times in a row" in search[1]
    assert look[0] == "look"
    assert "made 3 times and its result has not changed" in look[1]
    assert "limits/default/repeat" in look[1]


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
