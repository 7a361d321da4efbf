"""A journal's lines are the same whether a call's event was made for them or not."""

from __future__ import annotations

import itertools
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from policyguard import Guard, Session
from policyguard.compiler import compile_policy
from policyguard.guard.call_events import CallEventEmitter, FastCallEmitter
from policyguard.guard.replay import ReplaySession
from policyguard.journal import line_template
from policyguard.journal.chain import parse_link
from policyguard.journal.verify import verify
from policyguard.model.event import Admitted, Completed, Event
from policyguard.store.memory.store import MemoryStore
from tests.examples import examples
from tests.journal.setup import BEGIN, CAPS, SECOND

POLICY = """
policyguard: 1
name: told
tags: {team: {type: string, default: red}}
classify:
  classes: [{class: edit, tools: [edit]}, {class: look, tools: [read, "%s"]}]
  state_changing: [edit]
  targets: TARGETS
  fingerprint: {tolerance: TOLERANCE}
MORE
signatures: [{id: wrong, pattern: wrong, blame: agent}, {id: fine, pattern: fine, on: success}]
bounds: {argument_bytes: 2000, plans: 3, in_flight: 4}
journal: {args: ARGS, results: RESULTS}
"""
MORE = (
    "",
    "budgets: {calls: {calls: 9}, money: {cost: 3}}",
    "budgets: {done: {sum: 'outcome.chars', max: 5000}}",
    "learn: {corroborate: 2, scope: session}",
    "learn: {corroborate: 1, scope: session, weaken: {half_life: 1s, probation: 0.5}}",
    "# tolerant numbers",
    "limits: {default: {repeat: {max: 2, same: target}}}",
    "rules: {far: {when: 'size(call.targets) > 3', effect: block, reason: far}}  # targets",
    "rules: {hm: {tools: [read], when: call.args.n == 1, effect: advise, reason: hm}}",
    "radius: [{schedule: [5, 2], shrink_after: 2}]",
)
NAMES = ("read", "edit", "%s", "{a}", 'a"b\\', "ä\n", "\ud800", str(line_template.AT), "n" * 1990)


def policy(more: str = "", args: str = "hash", results: str = "hash") -> str:
    """A policy with one thing more, and what its journal keeps."""
    targets = "[path]" if "radius" in more or "targets" in more or "target}" in more else "[]"
    tolerance = "{n: 0.5}" if more.startswith("#") else "{}"
    text = POLICY.replace("MORE", more).replace("TARGETS", targets).replace("TOLERANCE", tolerance)
    return text.replace("ARGS", args).replace("RESULTS", results)


class Kept(MemoryStore):
    """A store in memory beside which journals are written."""

    def __init__(self, folder: Path, key: bytes) -> None:
        super().__init__(caps=CAPS)
        self.path = folder / "store"
        self.fingerprint_key = key


@contextmanager
def guards(text: str) -> Iterator[tuple[Guard, Guard]]:
    """A guard whose journal is all that hears of calls, and one that somebody listens to."""
    with tempfile.TemporaryDirectory() as name:
        file = Path(name) / "policy.yaml"
        file.write_text(text)
        made: list[Guard] = []
        for listener in (None, lambda event: None):
            folder = Path(name) / str(len(made))
            folder.mkdir()
            made.append(
                Guard(
                    compile_policy(file),
                    clock=itertools.count(BEGIN, SECOND).__next__,
                    listener=listener,
                    store=Kept(folder, b"k" * 32),
                )
            )
        assert type(made[0]._events) is FastCallEmitter
        assert type(made[1]._events) is CallEventEmitter
        yield made[0], made[1]
        for guard in made:
            guard.close()


def written(guard: Guard, session: str) -> list[tuple[bytes, bool]]:
    """The events of a session's journal as they stand there, and whether something is hidden."""
    assert guard._journal is not None
    out = []
    for line in guard._journal.path_of(session).read_bytes().splitlines():
        link = parse_link(line)
        assert link is not None
        out.append((line[: link.event_end], link.masked))
    return out


def one_of(**values: list[Any]) -> st.SearchStrategy[dict[str, Any]]:
    """Nothing, most often, or one of these."""
    ways = [{name: value} for name, some in values.items() for value in some]
    return st.one_of(st.just({}), st.sampled_from(ways))


CHECKS = one_of(
    at=[0, 1234567890123456789, BEGIN * 2],
    batch=["", "b"],
    tags=[{"team": "blue"}],
    server=["files", 'f"'],
    hints=[{"read_only": True}],
    estimate=[{"cost": 0.25}],
)
RECORDS = one_of(
    error=["wrong way", ""],
    exit_code=[0, 1],
    status=[200, 500],
    retry_after=[0.5],
    duration=[0.0, 1e-9, 1.5],
    tokens=[0, 7],
    cost=[0.0, 0.1],
    score=[0.0, 1.0],
    meta=[{"k": "v"}],
    blame=["harness"],
    at=[0, BEGIN * 2],
)
FAILED = {"content": [{"type": "text", "text": "broken"}], "isError": True}
PENDING = {
    "task": {"taskId": "t", "status": "working"},
    "content": [{"type": "text", "text": "soon"}],
}
ARGS = st.sampled_from(
    [{"path": "x"}, {"path": "y"}, {"n": 1}, {"n": 1.2}, {"n": line_template.AT}, {}, None]
)
RESULTS = st.sampled_from(
    [
        "ok",
        "ok",
        "fine",
        "wrong",
        "",
        str(line_template.AT),
        "ä\ud800",
        {"a": 1},
        FAILED,
        PENDING,
        "r" * 2100,
    ]
)
TOOLS = st.one_of(st.just("read"), st.just("read"), st.sampled_from(NAMES))
CALLS = st.lists(st.tuples(TOOLS, ARGS, CHECKS, RESULTS, RECORDS), min_size=4, max_size=12)


@settings(max_examples=examples(300), deadline=None)
@given(
    calls=CALLS,
    name=st.sampled_from(NAMES),
    more=st.sampled_from(MORE),
    args=st.sampled_from(["hash", "hash", "keep", "mask", "drop"]),
    results=st.sampled_from(["hash", "hash", "keep", "mask", "drop"]),
)
def test_what_is_written_of_a_call_is_its_event(
    calls: list[tuple[str, dict[str, Any], dict[str, Any], Any, dict[str, Any]]],
    name: str,
    more: str,
    args: str,
    results: str,
) -> None:
    with guards(policy(more, args, results)) as (alone, heard):
        lines = []
        for guard in (alone, heard):
            session, other = guard.session(name), guard.session("other")
            for place, (tool, arguments, asked, result, said) in enumerate(calls):
                one = other if place % 3 == 2 else session
                decision = one.check(tool, arguments, **asked)
                if place % 4 == 2:
                    ReplaySession(one).apply(
                        Completed(one.id, None, decision.id, provenance="inferred", text="ok")
                    )
                elif place % 4 != 3:
                    one.record(decision, result=result, **said)
            assert guard._journal is not None
            lines.append([written(guard, name), written(guard, "other")])
            assert not verify([guard._journal.folder], anchors=guard._journal._anchors).has_failed
        assert lines[0] == lines[1]


LIVE = [
    *[
        ("", {"check": {"batch": batch}})
        for batch in ("b", "4f-1", 'b"\\', "ä", "\ud800", "b" * 1990)
    ],
    *[("", {"check": asked}) for asked in ({"server": "files"}, {"at": BEGIN * 2})],
    ("", {"check": {"tags": {"team": "blue"}}}),
    ("", {"check": {"hints": {"read_only": True}}}),
    ("", {"check": {"estimate": {"cost": 0.25}}}),
    *[("", {"record": {"error": error}}) for error in ("wrong way", "")],
    *[("", {"record": {"exit_code": code}}) for code in (0, 1)],
    *[("", {"record": {"status": status}}) for status in (200, 500)],
    *[
        ("", {"record": {name: value}})
        for name in ("retry_after", "duration", "tokens", "cost", "score")
        for value in (0, 7, 1e16, 1e-9, 2**70)
    ],
    ("", {"record": {"exit_code": 0, "status": 201, "duration": 0.25, "tokens": 5, "cost": 0.5}}),
    ("", {"record": {"meta": {"k": "v"}}}),
    *[("", {"result": result}) for result in ("", "fine", FAILED, PENDING)],
    ("", {"args": {}}),
    ("", {"known": "inferred"}),
    ("# tolerant numbers", {"args": {"n": 1}}),
    ("# tolerant numbers", {"args": {"n": 1.1}}),
    *[(more, {"args": {"path": "x"}}) for more in MORE],
    *[(more, {"args": {"path": "x"}, "record": {"error": "wrong way"}}) for more in MORE],
    (MORE[2], {"result": "r" * 99}),
    (MORE[-2], {"args": {"n": 1}}),
]
"""In what a call may be no ordinary one, and the policy that makes it so."""


@pytest.mark.parametrize(("more", "odd"), LIVE, ids=map(str, range(len(LIVE))))
@pytest.mark.parametrize("first", [False, True])
def test_an_odd_call_between_ordinary_ones(more: str, odd: dict[str, Any], first: bool) -> None:
    def call(session: Session, number: int, *, odd: dict[str, Any]) -> None:
        args = odd.get("args", {"offset": number})
        decision = session.check("read", args, **odd.get("check", {}))
        if "known" in odd:
            done = Completed(session.id, BEGIN, decision.id, provenance="inferred", text="done")
            ReplaySession(session).apply(done)
        else:
            result = odd.get("result", f"result {number}")
            session.record(decision, result=result, **odd.get("record", {}))

    with guards(policy(more)) as both:
        lines = []
        for guard in both:
            session = guard.session("s")
            for number in range(4):
                call(session, number, odd=odd if first is (number % 2 == 0) else {})
            lines.append(written(guard, "s"))
        assert lines[0] == lines[1]


def _admitted(call: str) -> Event:
    return Admitted("s", BEGIN, call, "read", {"path": call[:9]})


def test_calls_of_one_tool_that_change_state_and_that_do_not() -> None:
    with guards("{policyguard: 1, name: shells, extends: [core]}") as both:
        lines = []
        for guard in both:
            session = guard.session("s")
            for command in ("cat a", "rm a", "cat b", "rm b"):
                session.record(session.check("bash", {"command": command}), result="done")
            lines.append(written(guard, "s"))
        assert lines[0] == lines[1]
        told = [b'"changing":false' in line for line, _ in lines[0] if b'"admitted"' in line]
        assert told == [True, False, True, False]


def test_charges_to_what_no_line_can_name() -> None:
    with guards(policy("budgets: {calls: {calls: 9, per: agent}}")) as both:
        lines = []
        for guard in both:
            session = guard.session("s", agent="half \ud800")
            for number in range(2):
                session.record(session.check("read", {"offset": number}), result="ok")
            lines.append(written(guard, "s"))
        assert lines[0] == lines[1]


def test_a_success_that_teaches() -> None:
    with guards(policy("learn: {corroborate: 2, scope: session}")) as both:
        lines = []
        for guard in both:
            session = guard.session("s")
            for number in range(3):
                session.record(session.check("read", {"offset": number}), result="ok")
            session.record(session.check("read", {"path": "x"}), error="wrong way")
            session.record(session.check("read", {"path": "x"}), result="ok")
            lines.append(written(guard, "s"))
        assert lines[0] == lines[1]
        assert b'"lessons"' in lines[0][-1][0]


@pytest.mark.parametrize("call", ["c1", "toolu_01", 'a"b\\', "\ud800", "ä", "9" * 2100, "0 1"])
def test_whatever_a_recorded_call_is_called(call: str) -> None:
    with guards(policy()) as both:
        lines = []
        for guard in both:
            session = guard.session("s")
            session.record(session.check("read", {"path": "x"}), result="x")
            ReplaySession(session).apply(_admitted(call))
            ReplaySession(session).apply(Completed("s", BEGIN, call, text="done"))
            lines.append(written(guard, "s"))
        assert lines[0] == lines[1]
        assert len(lines[0]) == 5


def test_a_listener_hears_each_event_while_it_listens() -> None:
    with guards(policy()) as (guard, _):
        session = guard.session("s")

        def call(number: int) -> None:
            session.record(session.check("read", {"path": str(number)}), result="x")

        told: list[Event] = []
        call(0)
        off: Callable[[], None] = guard.on(told.append)
        call(1)
        off()
        call(2)
        assert [type(event) for event in told] == [Admitted, Completed]
        assert len(written(guard, "s")) == 7
