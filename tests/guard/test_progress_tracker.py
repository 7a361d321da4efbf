"""`session.progress`, the radius and an outage through a guard, and out of its events again."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from msgspec.structs import replace

from policyguard import Guard, Session
from policyguard.compiler import CompiledPolicy, compile_policy
from policyguard.guard.guard_state import GuardState
from policyguard.guard.session import Session as Live
from policyguard.journal.format import decode, encode
from policyguard.model.event import Completed, Event

NOW = 1_772_800_000 * 10**9
POLICY = """
policyguard: 1
name: convergence
classify:
  targets: [paths]
  classes:
    - {class: look, tools: [read, grep]}
    - {class: run, tools: [test, bash]}
    - {class: change, tools: [edit]}
  state_changing: [change]
LEARN
progress: {exhausted_after: 2, plateau_after: 2}
radius: {schedule: [unlimited, 1], shrink_after: 2, widen_after: 2}
limits:
  default: {outage: {max: 2, within: 60s, cooldown: 10s}}
rules:
  never: {tools: [bash], when: "true"}
"""


def _ways(session: Live) -> list[bool]:
    course = session._state.search_progress
    return [way in course.banned for way in course.visited]


def made(folder: Path, learn: str = "learn: {corroborate: 1}") -> CompiledPolicy:
    file = folder / "policy.yaml"
    file.write_text(POLICY.replace("LEARN", learn))
    return compile_policy(file)


def fail(session: Session, tool: str, text: str, blame: str = "agent", **args: object) -> None:
    session.record(session.check(tool, args), error=text, blame=blame)


def test_the_events_tell_all_of_it(tmp_path: Path) -> None:
    compiled = made(tmp_path)
    events: list[Event] = []
    guard = Guard(compiled, clock=lambda: NOW, listener=events.append)
    session = guard.session("s")
    fail(session, "test", "a", n=1, paths=["a"])
    fail(session, "test", "a", n=2, paths=["a"])
    fail(session, "get", "down", "harness")
    fail(session, "get", "down", "harness")
    refused = session.check("test", {"n": 1, "paths": ["a"]})
    assert [one.reason for one in refused.violations] == ["learned"]
    restored = Guard(compiled, clock=lambda: NOW)
    restored._state = GuardState(compiled)
    for event in events:
        restored._state.fold(decode(encode(event)))
    again = Live(restored, restored._state.engine_state.sessions["s"])
    for one in (session, again):
        # The outage's call was let through twice: a way, and free.
        assert one.progress == "progressing"
        wide = one.preview("test", {"n": 3, "paths": ["a", "b"]})
        assert [violation.id for violation in wide.violations] == ["radius"]
        assert (wide.structured["used"], wide.structured["limit"]) == (2, 1)
        down = one.preview("get")
        assert down.structured["reason"] == "outage"
        assert down.structured["retry_after"] == 10.0


def test_what_learns_by_class_searches_by_class(tmp_path: Path) -> None:
    compiled = made(tmp_path, "learn: {corroborate: 1, ban: class, reset_on: none}")
    session = Guard(compiled, clock=lambda: NOW).session("s")
    for number in range(9):
        session.record(session.check("read", {"n": number}))
    fail(session, "test", "a", n=1)
    assert session.progress == "progressing"  # two ways, of which one is free
    assert not session.done
    fail(session, "read", "a", n=1)
    assert session.progress == "exhausted"
    assert session.done


def test_what_learns_by_tool_searches_by_tool(tmp_path: Path) -> None:
    compiled = made(tmp_path, "learn: {corroborate: 1, ban: tool, reset_on: none}")
    session = Guard(compiled, clock=lambda: NOW).session("s")
    session.record(session.check("grep"))
    fail(session, "test", "a")
    fail(session, "read", "a")
    assert session.progress == "progressing"
    fail(session, "grep", "a")
    assert session.progress == "exhausted"


def test_a_key_of_the_policys_own_cannot_be_counted_by(tmp_path: Path) -> None:
    learn = "learn: {corroborate: 1, key: call.tool + call.args.kind}"
    session = Guard(made(tmp_path, learn), clock=lambda: NOW).session("s")
    fail(session, "test", "a", kind="x")
    session.record(session.check("test", {"kind": "y"}))
    assert _ways(session) == [True, False]


def test_what_something_else_refuses_is_no_new_way(tmp_path: Path) -> None:
    session = Guard(made(tmp_path), clock=lambda: NOW).session("s")
    fail(session, "test", "a", n=1)
    fail(session, "test", "a", n=2)
    assert session.progress == "exhausted"
    session.check("bash", {"n": 3})
    assert session.progress == "exhausted"  # the rule refuses it: nothing new to try
    fail(session, "get", "down", "harness")
    assert session.progress == "progressing"


def test_a_known_way_that_no_constraint_bans_any_more_is_free(tmp_path: Path) -> None:
    compiled = made(tmp_path)
    guard = Guard(compiled, clock=lambda: NOW)
    session = guard.session("s")
    wide = {"paths": ["a", "b"]}
    fail(session, "test", "a", **wide)
    fail(session, "test", "a", paths=["a"])
    assert session.progress == "exhausted"
    assert {one.reason for one in session.check("test", wide).violations} == {"learned", "radius"}
    assert session.progress == "exhausted"
    for constraint in guard._state.constraint_set:
        guard._state.constraint_set.remove(constraint.id)
    assert {one.reason for one in session.check("test", wide).violations} == {"radius"}
    assert session.progress == "progressing"


def test_only_a_successful_change_puts_bans_on_trial(tmp_path: Path) -> None:
    guard = Guard(made(tmp_path), clock=lambda: NOW)
    session = guard.session("s")
    for number in range(12):
        fail(session, "test", "a", n=number)
    session.record(session.check("grep"), result="nothing changed")
    fail(session, "edit", "down", "harness")
    course = session._state.search_progress
    assert len(course.banned) == 12
    session.record(session.check("edit"), result="done")
    assert not course.banned
    assert session.progress == "progressing"


def test_where_a_change_resets_nothing_bans_stay(tmp_path: Path) -> None:
    session = Guard(made(tmp_path, "learn: {corroborate: 1, reset_on: none}")).session("s")
    fail(session, "test", "a", n=1)
    session.record(session.check("edit"), result="done")
    assert len(session._state.search_progress.banned) == 1


def test_the_last_ban_lifted_is_progress(tmp_path: Path) -> None:
    compiled = made(tmp_path)
    aim = msgspec.structs.replace(compiled.policy.progress, exhausted_after=1)
    policy = msgspec.structs.replace(compiled.policy, progress=aim)
    guard = Guard(replace(compiled, policy=policy), clock=lambda: NOW)
    session = guard.session("s")
    fail(session, "test", "a", n=1)
    assert session.progress == "exhausted"
    for constraint in guard._state.constraint_set:
        guard._state.constraint_set.remove(constraint.id)
    session.check("test", {"n": 1})
    assert session.progress == "progressing"


def test_arguments_that_cannot_be_judged_say_nothing_of_the_tool(tmp_path: Path) -> None:
    compiled = made(tmp_path, "learn: {corroborate: 1, ban: tool, reset_on: none}")
    session = Guard(compiled, clock=lambda: NOW).session("s")
    fail(session, "test", "a")
    fail(session, "read", "a")
    assert session.progress == "exhausted"
    session.check("test", {"n": float("nan")})
    assert session.progress == "exhausted"


@pytest.mark.parametrize(
    ("first", "second", "narrower"),
    [
        ("lost 1", "lost too", True),  # one signature
        ("strange: 1", "strange: 2", True),  # one error, its accidents masked
        ("strange", "other", False),
        ("lost 1", "strange", False),
    ],
)
def test_failures_corroborate_each_other_when_they_say_the_same(
    first: str, second: str, *, narrower: bool, tmp_path: Path
) -> None:
    signatures = "signatures: [{id: lost, pattern: lost, blame: agent}]"
    session = Guard(made(tmp_path, signatures), clock=lambda: NOW).session("s")
    fail(session, "test", first, paths=["a"])
    fail(session, "test", second, paths=["a"])
    assert session.check("test", {"paths": ["a", "b"]}).allowed is not narrower


def test_a_condition_that_errs_stands_in_the_decision(tmp_path: Path) -> None:
    file = tmp_path / "policy.yaml"
    file.write_text(
        "policyguard: 1\nname: x\nclassify: {targets: [paths]}\n"
        "radius: [{when: call.args.n > 1, shrink_after: 1, schedule: [1]}]\n"
    )
    decision = Guard.load(file).session("s").check("test", {"paths": ["a", "b"]})
    assert [violation.id for violation in decision.violations] == ["radius"]
    assert [fault.id for fault in decision.errors] == ["radius"]


def test_without_learning_there_are_scores_and_no_search_space(tmp_path: Path) -> None:
    session = Guard(made(tmp_path, ""), clock=lambda: NOW).session("s")
    for number in range(3):
        fail(session, "test", "a", n=number)
        session.record(session.check("read"), score=1.0)
    assert session.progress == "plateau"
    assert _ways(session) == []


def test_what_was_read_out_of_a_text_shrinks_no_radius(tmp_path: Path) -> None:
    session = Guard(made(tmp_path), clock=lambda: NOW).session("s")
    for _ in range(3):
        decision = session.check("test", {"paths": ["a"]})
        session._replay(
            Completed(
                "s", NOW, decision.id, ok=False, provenance="inferred", text="a", blame="agent"
            )
        )
    assert session.check("test", {"paths": ["a", "b"]}).allowed
