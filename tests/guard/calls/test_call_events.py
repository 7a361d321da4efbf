"""Journal lines are the same whether or not an event was created for the call."""

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
from policyguard.guard.calls.events import CallEventEmitter, FastCallEmitter
from policyguard.guard.replay import ReplaySession
from policyguard.journal import line_template
from policyguard.journal.chain import parse_link
from policyguard.journal.verify import verify
from policyguard.model.event import Admitted, Completed, Event, Refused
from policyguard.store.memory.store import MemoryStore
from tests.examples import examples
from tests.journal.setup import BEGIN, CAPS, SECOND

POLICY = """
policyguard: 1
name: call-events
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
SECTIONS = (
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
    "mode: observe\nrules: {odd: {tools: [read], when: has(call.args.n)}}",
    "marks: {seen: {set: {tools: [read], when: 'outcome.text == \"odd\"'}}}",
    "result_rules: {odd: {tools: [read], when: 'outcome.text == \"odd\"', effect: advise, "
    "message: m}}",
)
NAMES = ("read", "edit", "%s", "{a}", 'a"b\\', "ä\n", "\ud800", str(line_template.AT), "n" * 1990)


def policy(section: str = "", args: str = "hash", results: str = "hash") -> str:
    """Return a policy with one extra section and journal settings."""
    targets = (
        "[path]" if "radius" in section or "targets" in section or "target}" in section else "[]"
    )
    tolerance = "{n: 0.5}" if section.startswith("#") else "{}"
    text = (
        POLICY.replace("MORE", section).replace("TARGETS", targets).replace("TOLERANCE", tolerance)
    )
    return text.replace("ARGS", args).replace("RESULTS", results)


class FolderStore(MemoryStore):
    """A memory store with a folder for journals."""

    def __init__(self, folder: Path, key: bytes) -> None:
        super().__init__(caps=CAPS)
        self.path = folder / "store"
        self.fingerprint_key = key


@contextmanager
def guards(text: str) -> Iterator[tuple[Guard, Guard]]:
    """Yield a guard that only writes a journal, and one that also has a listener."""
    with tempfile.TemporaryDirectory() as name:
        file = Path(name) / "policy.yaml"
        file.write_text(text)
        loaded: list[Guard] = []
        for listener in (None, lambda event: None):
            folder = Path(name) / str(len(loaded))
            folder.mkdir()
            loaded.append(
                Guard(
                    compile_policy(file),
                    clock=itertools.count(BEGIN, SECOND).__next__,
                    listener=listener,
                    store=FolderStore(folder, b"k" * 32),
                )
            )
        assert type(loaded[0]._events) is FastCallEmitter
        assert type(loaded[1]._events) is CallEventEmitter
        yield loaded[0], loaded[1]
        for guard in loaded:
            guard.close()


def read_lines(guard: Guard, session: str) -> list[tuple[bytes, bool]]:
    """Return the lines of a session's journal up to the hash, and whether each is masked."""
    assert guard._journal is not None
    lines = []
    for line in guard._journal.path_of(session).read_bytes().splitlines():
        link = parse_link(line)
        assert link is not None
        lines.append((line[: link.event_end], link.masked))
    return lines


def sample_option(**values: list[Any]) -> st.SearchStrategy[dict[str, Any]]:
    """Sample no option, which is most likely, or one of these."""
    options = [{name: value} for name, samples in values.items() for value in samples]
    return st.one_of(st.just({}), st.sampled_from(options))


CHECKS = sample_option(
    at=[0, 1234567890123456789, BEGIN * 2],
    batch=["", "b"],
    tags=[{"team": "blue"}],
    server=["files", 'f"'],
    hints=[{"read_only": True}],
    estimate=[{"cost": 0.25}],
)
RECORDS = sample_option(
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


@settings(max_examples=examples(300, 10), deadline=None)
@given(
    calls=CALLS,
    name=st.sampled_from(NAMES),
    section=st.sampled_from(SECTIONS),
    args=st.sampled_from(["hash", "hash", "keep", "mask", "drop"]),
    results=st.sampled_from(["hash", "hash", "keep", "mask", "drop"]),
)
def test_journal_lines_are_the_same_with_and_without_a_listener(
    calls: list[tuple[str, dict[str, Any], dict[str, Any], Any, dict[str, Any]]],
    name: str,
    section: str,
    args: str,
    results: str,
) -> None:
    with guards(policy(section, args, results)) as (without_listener, with_listener):
        lines = []
        for guard in (without_listener, with_listener):
            session, other = guard.session(name), guard.session("other")
            for index, (tool, arguments, check_options, result, record_options) in enumerate(calls):
                current = other if index % 3 == 2 else session
                decision = current.check(tool, arguments, **check_options)
                if index % 4 == 2:
                    ReplaySession(current).apply(
                        Completed(current.id, None, decision.id, provenance="inferred", text="ok")
                    )
                elif index % 4 != 3:
                    current.record(decision, result=result, **record_options)
            assert guard._journal is not None
            lines.append([read_lines(guard, name), read_lines(guard, "other")])
            assert not verify([guard._journal.folder], anchors=guard._journal._anchors).has_failed
        assert lines[0] == lines[1]


VARIANTS = [
    *[
        ("", {"check": {"batch": batch}})
        for batch in ("b", "4f-1", 'b"\\', "ä", "\ud800", "b" * 1990)
    ],
    *[("", {"check": check_options}) for check_options in ({"server": "files"}, {"at": BEGIN * 2})],
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
    *[(section, {"args": {"path": "x"}}) for section in SECTIONS],
    *[(section, {"args": {"path": "x"}, "record": {"error": "wrong way"}}) for section in SECTIONS],
    (SECTIONS[2], {"result": "r" * 99}),
    *[(section, {"args": {"n": 1}, "result": "odd"}) for section in SECTIONS[-5:]],
]
"""A policy section, and how a call differs from an ordinary one."""


@pytest.mark.parametrize(("section", "variant"), VARIANTS, ids=map(str, range(len(VARIANTS))))
@pytest.mark.parametrize("first", [False, True])
def test_unusual_calls_between_ordinary_ones_are_written_alike(
    section: str, variant: dict[str, Any], first: bool
) -> None:
    def call(session: Session, number: int, *, variant: dict[str, Any]) -> None:
        args = variant.get("args", {"offset": number})
        decision = session.check("read", args, **variant.get("check", {}))
        if "known" in variant:
            done = Completed(session.id, BEGIN, decision.id, provenance="inferred", text="done")
            ReplaySession(session).apply(done)
        else:
            result = variant.get("result", f"result {number}")
            session.record(decision, result=result, **variant.get("record", {}))

    with guards(policy(section)) as guard_pair:
        lines = []
        for guard in guard_pair:
            session = guard.session("s")
            for number in range(4):
                call(session, number, variant=variant if first is (number % 2 == 0) else {})
            lines.append(read_lines(guard, "s"))
        assert lines[0] == lines[1]


def _admitted(call: str) -> Event:
    return Admitted("s", BEGIN, call, "read", {"path": call[:9]})


def test_calls_of_one_tool_can_differ_in_state_changing() -> None:
    with guards("{policyguard: 1, name: shells, extends: [core]}") as guard_pair:
        lines = []
        for guard in guard_pair:
            session = guard.session("s")
            for command in ("cat a", "rm a", "cat b", "rm b"):
                session.record(session.check("bash", {"command": command}), result="done")
            lines.append(read_lines(guard, "s"))
        assert lines[0] == lines[1]
        flags = [b'"changing":false' in line for line, _ in lines[0] if b'"admitted"' in line]
        assert flags == [True, False, True, False]


def test_charges_to_keys_with_surrogates_are_written_alike() -> None:
    with guards(policy("budgets: {calls: {calls: 9, per: agent}}")) as guard_pair:
        lines = []
        for guard in guard_pair:
            session = guard.session("s", agent="half \ud800")
            for number in range(2):
                session.record(session.check("read", {"offset": number}), result="ok")
            lines.append(read_lines(guard, "s"))
        assert lines[0] == lines[1]


def test_success_that_teaches_is_written_alike() -> None:
    with guards(policy("learn: {corroborate: 2, scope: session}")) as guard_pair:
        lines = []
        for guard in guard_pair:
            session = guard.session("s")
            for number in range(3):
                session.record(session.check("read", {"offset": number}), result="ok")
            session.record(session.check("read", {"path": "x"}), error="wrong way")
            session.record(session.check("read", {"path": "x"}), result="ok")
            lines.append(read_lines(guard, "s"))
        assert lines[0] == lines[1]
        assert b'"lessons"' in lines[0][-1][0]


def test_failures_that_only_their_codes_tell_are_written_alike() -> None:
    with guards(policy()) as guard_pair:
        lines = []
        for guard in guard_pair:
            session = guard.session("s")
            for text in ("it is gone", "it is locked", "it is full"):
                decision = session.check("read", {"path": text})
                session.record(decision, result=text, exit_code=1)
            lines.append(read_lines(guard, "s"))
        assert lines[0] == lines[1]


@pytest.mark.parametrize("call", ["c1", "toolu_01", 'a"b\\', "\ud800", "ä", "9" * 2100, "0 1"])
def test_any_recorded_call_id_is_written_alike(call: str) -> None:
    with guards(policy()) as guard_pair:
        lines = []
        for guard in guard_pair:
            session = guard.session("s")
            session.record(session.check("read", {"path": "x"}), result="x")
            ReplaySession(session).apply(_admitted(call))
            ReplaySession(session).apply(Completed("s", BEGIN, call, text="done"))
            lines.append(read_lines(guard, "s"))
        assert lines[0] == lines[1]
        assert len(lines[0]) == 5


def test_listener_receives_events_while_subscribed() -> None:
    with guards(policy()) as (guard, _):
        session = guard.session("s")

        def call(number: int) -> None:
            session.record(session.check("read", {"path": str(number)}), result="x")

        events: list[Event] = []
        call(0)
        unsubscribe: Callable[[], None] = guard.on(events.append)
        call(1)
        unsubscribe()
        call(2)
        assert [type(event) for event in events] == [Admitted, Completed]
        assert len(read_lines(guard, "s")) == 7


def test_refused_call_counts_as_an_attempt_for_budgets_whose_thresholds_need_it(
    tmp_path: Path,
) -> None:
    file = tmp_path / "policy.yaml"
    file.write_text(
        "policyguard: 1\nname: p\nrules: {no: {tools: [no]}}\n"
        "budgets: {plain: {calls: 9}, halting: {calls: 9, halt_at: 12}, "
        "sum: {sum: call.args.n, max: 9, ask_at: 8}}\n"
    )
    guard = Guard.load(file)
    refused: list[Refused] = []
    guard.on(refused.append, Refused)
    guard.session("s").check("no", {"n": 1})
    assert [one.budget for one in refused[0].attempt_charges] == ["budgets/halting"]
