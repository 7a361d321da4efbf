"""Marks that expire, in recorded runs where some calls have no time."""

from __future__ import annotations

from pathlib import Path

from policyguard.compiler import compile_policy
from policyguard.guard.replay import ReplayGuard, ReplaySession
from policyguard.model.event import Admitted, Completed, SessionStarted

HOUR = 3600 * 10**9
POLICY = """
policyguard: 1
name: marks
classify: {classes: [{class: untested, tools: [ship], when: "!mark.tested"}]}
marks:
  tested: {set: {tools: [test]}, within: 1h}
  read: {key: call.args.path, set: {tools: [read]}, within: 1h, on_error: set}
rules:
  untested: {classes: [untested]}
  edit: {tools: [edit], unless: call.args.path in mark.read}
"""


def start_session(folder: Path) -> ReplaySession:
    file = folder / "policy.yaml"
    file.write_text(POLICY)
    return ReplayGuard(compile_policy(file)).start_session(SessionStarted("s", HOUR))


def check(session: ReplaySession, tool: str, at: int | None, path: str = "") -> bool:
    """Check a call, and record that it succeeded if it is allowed."""
    call = f"{tool} {path} {at}"
    allowed = session.check(Admitted("s", at, call, tool, {"path": path})).allowed
    if allowed:
        session.record(Completed("s", at, call, ok=True))
    return allowed


def test_for_a_call_without_a_time_no_mark_has_expired(tmp_path: Path) -> None:
    session = start_session(tmp_path)
    assert not check(session, "ship", None)
    assert check(session, "test", HOUR)
    assert check(session, "ship", None)
    assert not check(session, "ship", 2 * HOUR)


def test_a_mark_that_was_set_at_an_unknown_time_does_not_expire(tmp_path: Path) -> None:
    """Nor does it once it is set again, where doubt sets it."""
    session = start_session(tmp_path)
    for path, at in (("a", None), ("a", HOUR), ("b", HOUR)):
        assert check(session, "read", at, path)
    assert check(session, "edit", HOUR, "b")
    assert not check(session, "edit", 3 * HOUR, "b")
    assert check(session, "edit", 3 * HOUR, "a")
