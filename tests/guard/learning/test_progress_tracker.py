"""Progress, radius and outage of a session, live and rebuilt from events."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from msgspec.structs import replace

from policyguard import Guard, Session
from policyguard.compiler import CompiledPolicy, compile_policy
from policyguard.guard.guard_state import GuardState
from policyguard.guard.replay import ReplaySession
from policyguard.guard.session import Session as Live
from policyguard.journal.format import decode, encode
from policyguard.model.event import Completed, Event

NOW = 1_772_800_000 * 10**9
POLICY = """
policyguard: 1
name: progress
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


def _banned_flags(session: Live) -> list[bool]:
    progress = session._state.search_progress
    return [candidate in progress.banned for candidate in progress.visited]


def compile_with(folder: Path, learn: str = "learn: {corroborate: 1}") -> CompiledPolicy:
    file = folder / "policy.yaml"
    file.write_text(POLICY.replace("LEARN", learn))
    return compile_policy(file)


def record_failure(
    session: Session, tool: str, text: str, blame: str = "agent", **args: object
) -> None:
    session.record(session.check(tool, args), error=text, blame=blame)


def test_events_rebuild_progress_radius_and_outage(tmp_path: Path) -> None:
    compiled = compile_with(tmp_path)
    events: list[Event] = []
    guard = Guard(compiled, clock=lambda: NOW, listener=events.append)
    session = guard.session("s")
    record_failure(session, "test", "a", n=1, paths=["a"])
    record_failure(session, "test", "a", n=2, paths=["a"])
    record_failure(session, "get", "down", "harness")
    record_failure(session, "get", "down", "harness")
    refused = session.check("test", {"n": 1, "paths": ["a"]})
    assert [violation.reason for violation in refused.violations] == ["learned"]
    restored = Guard(compiled, clock=lambda: NOW)
    restored._state = GuardState(compiled)
    for event in events:
        restored._state.fold(decode(encode(event)))
    rebuilt = Live(restored, restored._state.evaluator_state.sessions["s"])
    for current in (session, rebuilt):
        # The failing tool was admitted twice: a candidate that is not banned.
        assert current.progress == "progressing"
        two_targets = current.preview("test", {"n": 3, "paths": ["a", "b"]})
        assert [violation.id for violation in two_targets.violations] == ["radius"]
        assert (two_targets.structured["used"], two_targets.structured["limit"]) == (2, 1)
        outage = current.preview("get")
        assert outage.structured["reason"] == "outage"
        assert outage.structured["retry_after"] == 10.0


def test_search_space_counts_classes_when_classes_are_banned(tmp_path: Path) -> None:
    compiled = compile_with(tmp_path, "learn: {corroborate: 1, ban: class, reset_on: none}")
    session = Guard(compiled, clock=lambda: NOW).session("s")
    for number in range(9):
        session.record(session.check("read", {"n": number}))
    record_failure(session, "test", "a", n=1)
    assert session.progress == "progressing"  # one of two candidates is banned
    assert not session.done
    record_failure(session, "read", "a", n=1)
    assert session.progress == "exhausted"
    assert session.done


def test_search_space_counts_tools_when_tools_are_banned(tmp_path: Path) -> None:
    compiled = compile_with(tmp_path, "learn: {corroborate: 1, ban: tool, reset_on: none}")
    session = Guard(compiled, clock=lambda: NOW).session("s")
    session.record(session.check("grep"))
    record_failure(session, "test", "a")
    record_failure(session, "read", "a")
    assert session.progress == "progressing"
    record_failure(session, "grep", "a")
    assert session.progress == "exhausted"


def test_search_space_counts_calls_when_the_policy_sets_a_key(tmp_path: Path) -> None:
    learn = "learn: {corroborate: 1, key: call.tool + call.args.kind}"
    session = Guard(compile_with(tmp_path, learn), clock=lambda: NOW).session("s")
    record_failure(session, "test", "a", kind="x")
    session.record(session.check("test", {"kind": "y"}))
    assert _banned_flags(session) == [True, False]


@pytest.mark.parametrize(
    ("calls", "status"),
    [
        ("abc", "constrained_out"),  # one of three is banned
        ("aabbc", "progressing"),  # the oldest are forgotten: only two are left
    ],
)
def test_the_search_space_holds_the_latest_calls(calls: str, status: str, tmp_path: Path) -> None:
    compiled = compile_with(tmp_path)
    settings = replace(compiled.policy.progress, space=3, exhausted_after=3, constrained_below=0.7)
    policy = replace(compiled.policy, progress=settings)
    session = Guard(replace(compiled, policy=policy), clock=lambda: NOW).session("s")
    *others, last = calls
    for name in others:
        session.record(session.check("test", {"of": name}), result="fine")
    record_failure(session, "test", "a", of=last)
    assert session.progress == status


def test_calls_refused_by_other_entries_are_not_candidates(tmp_path: Path) -> None:
    session = Guard(compile_with(tmp_path), clock=lambda: NOW).session("s")
    record_failure(session, "test", "a", n=1)
    record_failure(session, "test", "a", n=2)
    assert session.progress == "exhausted"
    session.check("bash", {"n": 3})
    assert session.progress == "exhausted"  # refused by a rule, so not a candidate
    record_failure(session, "get", "down", "harness")
    assert session.progress == "progressing"


def test_visited_candidate_is_allowed_once_its_constraint_is_gone(tmp_path: Path) -> None:
    compiled = compile_with(tmp_path)
    guard = Guard(compiled, clock=lambda: NOW)
    session = guard.session("s")
    two_targets = {"paths": ["a", "b"]}
    record_failure(session, "test", "a", **two_targets)
    record_failure(session, "test", "a", paths=["a"])
    assert session.progress == "exhausted"
    assert {violation.reason for violation in session.check("test", two_targets).violations} == {
        "learned",
        "radius",
    }
    assert session.progress == "exhausted"
    for constraint in guard._state.constraint_set:
        guard._state.constraint_set.remove(constraint.id)
    assert {violation.reason for violation in session.check("test", two_targets).violations} == {
        "radius"
    }
    assert session.progress == "progressing"


def test_only_a_successful_state_change_lifts_bans_of_the_search_space(tmp_path: Path) -> None:
    guard = Guard(compile_with(tmp_path), clock=lambda: NOW)
    session = guard.session("s")
    for number in range(12):
        record_failure(session, "test", "a", n=number)
    session.record(session.check("grep"), result="nothing changed")
    record_failure(session, "edit", "down", "harness")
    progress = session._state.search_progress
    assert len(progress.banned) == 12
    session.record(session.check("edit"), result="done")
    assert not progress.banned
    assert session.progress == "progressing"


def test_bans_stay_if_state_changes_reset_nothing(tmp_path: Path) -> None:
    session = Guard(compile_with(tmp_path, "learn: {corroborate: 1, reset_on: none}")).session("s")
    record_failure(session, "test", "a", n=1)
    session.record(session.check("edit"), result="done")
    assert len(session._state.search_progress.banned) == 1


def test_lifting_the_last_ban_is_progress(tmp_path: Path) -> None:
    compiled = compile_with(tmp_path)
    progress_settings = msgspec.structs.replace(compiled.policy.progress, exhausted_after=1)
    policy = msgspec.structs.replace(compiled.policy, progress=progress_settings)
    guard = Guard(replace(compiled, policy=policy), clock=lambda: NOW)
    session = guard.session("s")
    record_failure(session, "test", "a", n=1)
    assert session.progress == "exhausted"
    for constraint in guard._state.constraint_set:
        guard._state.constraint_set.remove(constraint.id)
    session.check("test", {"n": 1})
    assert session.progress == "progressing"


def test_invalid_arguments_do_not_affect_progress(tmp_path: Path) -> None:
    compiled = compile_with(tmp_path, "learn: {corroborate: 1, ban: tool, reset_on: none}")
    session = Guard(compiled, clock=lambda: NOW).session("s")
    record_failure(session, "test", "a")
    record_failure(session, "read", "a")
    assert session.progress == "exhausted"
    session.check("test", {"n": float("nan")})
    assert session.progress == "exhausted"


@pytest.mark.parametrize(
    ("first_error", "second_error", "corroborates"),
    [
        ("lost 1", "lost too", True),  # one signature
        ("strange: 1", "strange: 2", True),  # the same error once numbers are masked
        ("strange", "other", False),
        ("lost 1", "strange", False),
    ],
)
def test_failures_with_the_same_error_narrow_the_radius(
    first_error: str, second_error: str, *, corroborates: bool, tmp_path: Path
) -> None:
    signatures = "signatures: [{id: lost, pattern: lost, blame: agent}]"
    session = Guard(compile_with(tmp_path, signatures), clock=lambda: NOW).session("s")
    record_failure(session, "test", first_error, paths=["a"])
    record_failure(session, "test", second_error, paths=["a"])
    assert session.check("test", {"paths": ["a", "b"]}).allowed is not corroborates


def test_failing_radius_condition_is_in_the_errors_of_the_decision(tmp_path: Path) -> None:
    file = tmp_path / "policy.yaml"
    file.write_text(
        "policyguard: 1\nname: x\nclassify: {targets: [paths]}\n"
        "radius: [{when: call.args.n > 1, shrink_after: 1, schedule: [1]}]\n"
    )
    decision = Guard.load(file).session("s").check("test", {"paths": ["a", "b"]})
    assert [violation.id for violation in decision.violations] == ["radius"]
    assert [error.id for error in decision.errors] == ["radius"]


def test_progress_without_learning_uses_scores_only(tmp_path: Path) -> None:
    session = Guard(compile_with(tmp_path, ""), clock=lambda: NOW).session("s")
    for number in range(3):
        record_failure(session, "test", "a", n=number)
        session.record(session.check("read"), score=1.0)
    assert session.progress == "plateau"
    assert _banned_flags(session) == []


def test_inferred_failures_do_not_narrow_the_radius(tmp_path: Path) -> None:
    session = Guard(compile_with(tmp_path), clock=lambda: NOW).session("s")
    for _ in range(3):
        decision = session.check("test", {"paths": ["a"]})
        ReplaySession(session).apply(
            Completed(
                "s", NOW, decision.id, ok=False, provenance="inferred", text="a", blame="agent"
            )
        )
    assert session.check("test", {"paths": ["a", "b"]}).allowed
