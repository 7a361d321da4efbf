"""What a host can see and type: members, reprs, times, owners of sessions."""

from __future__ import annotations

import typing
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

import policyguard
from policyguard import Decision, Guard, PolicyguardError, Session
from policyguard.model.event import Admitted, Completed, Event, Granted

POLICY = """
policyguard: 1
name: surface
rules: {no: {tools: [no], effect: block, message: "never"}}
budgets: {task: {time: 10m, per: turn, extend: 5m}}
"""


def load(folder: Path, **options: typing.Any) -> Guard:
    file = folder / "policy.yaml"
    file.write_text(POLICY)
    return Guard.load(file, **options)


def public_members(instance: object) -> set[str]:
    return {name for name in dir(instance) if not name.startswith("_")}


def test_guard_has_only_documented_members(tmp_path: Path) -> None:
    assert public_members(load(tmp_path)) == {
        "aclose",
        "close",
        "closed",
        "constraints",
        "diagnostics",
        "digest",
        "expect_answers",
        "load",
        "on",
        "policy",
        "questions",
        "restore",
        "revoke",
        "session",
        "grants",
        "snapshot",
        "tool",
    }


def test_session_has_only_documented_members(tmp_path: Path) -> None:
    assert public_members(load(tmp_path).session("s")) == {
        "acheck",
        "approve",
        "arecord",
        "arun",
        "check",
        "deny",
        "check_batch",
        "close",
        "closed",
        "disabled",
        "done",
        "end",
        "grant",
        "guard",
        "id",
        "halted_by",
        "in_flight",
        "mark",
        "offer",
        "preview",
        "progress",
        "record",
        "release",
        "run",
        "spend",
        "turn",
        "unmark",
    }


def test_reprs_show_the_essentials(tmp_path: Path) -> None:
    guard = load(tmp_path)
    session = guard.session("s")
    allowed, refused = session.check("x", {"secret": 1}), session.check("no")
    recorded = session.record(allowed, error="wrong")
    assert repr(guard) == "<Guard policy='surface' sessions=1>"
    assert repr(session) == "<Session 's' calls=2>"
    assert repr(allowed) == "<Decision c1 'x': allow>"
    assert repr(refused) == "<Decision c2 'no': block (rules/no)>"
    assert repr(recorded) == "<Recorded failure, blame unknown>"
    assert repr(recorded.outcome).startswith("<Outcome failure: unknown")
    assert repr(session.preview("x")) == "<Decision not counted 'x': allow>"
    assert repr(session.record(allowed, result="")) == "<Recorded success, not counted>"
    session.close()
    assert repr(session) == "<Session 's' calls=2 closed>"
    guard.close()
    assert repr(guard) == "<Guard policy='surface' sessions=0 closed>"


def test_times_are_nanoseconds_or_aware_datetimes(tmp_path: Path) -> None:
    events: list[Event] = []
    guard = load(tmp_path)
    guard.on(events.append, Admitted, Completed)
    session = guard.session("s")
    time = datetime.now(UTC).replace(microsecond=123456) + timedelta(seconds=2)
    at = (int(time.timestamp()) * 10**6 + 123456) * 1000
    assert session.preview("x", at=time).allowed
    decision = session.check("x", at=time)
    session.record(decision, result="fine", at=time + timedelta(seconds=2))
    assert [event.at for event in events] == [at, at + 2 * 10**9]
    with pytest.raises(ValueError, match="`at` is a datetime without a time zone"):
        session.check("x", at=datetime(2030, 1, 1))


def test_durations_are_seconds_or_timedeltas(tmp_path: Path) -> None:
    events: list[Event] = []
    guard = load(tmp_path)
    guard.on(events.append, Completed, Granted)
    session = guard.session("s")
    duration = timedelta(milliseconds=1500)
    session.record(session.check("x"), error="wait", duration=duration, retry_after=duration)
    session.grant("task", duration, by="ann")
    completed, granted = events
    assert isinstance(completed, Completed)
    assert isinstance(granted, Granted)
    assert (completed.duration, completed.retry_after, granted.amount) == (1.5, 1.5, 1.5)


@pytest.mark.parametrize("durable", [True, False])
@pytest.mark.parametrize("owner", ["user", "agent", "project"])
def test_session_cannot_be_reopened_for_another_owner(
    tmp_path: Path, owner: str, durable: bool
) -> None:
    guard = load(tmp_path, store=tmp_path / "store.db" if durable else None)
    session = guard.session("s", **{owner: "ann"})
    assert guard.session("s") is session
    assert guard.session("s", **{owner: "ann"}) is session
    for _ in range(2):
        with pytest.raises(
            ValueError, match=f"session `s` was opened for {owner} `ann`, not for `bob`"
        ):
            guard.session("s", **{owner: "bob"})
        session.close()
    assert guard.session("s", **{owner: "ann"}).check("x").allowed


def test_all_exceptions_share_a_base_class() -> None:
    errors = [getattr(policyguard, name) for name in policyguard.__all__]
    errors = [one for one in errors if isinstance(one, type) and issubclass(one, Exception)]
    assert len(errors) > 8
    assert all(issubclass(one, PolicyguardError) for one in errors)


def test_version_is_that_of_the_distribution() -> None:
    assert policyguard.__version__.split(".")[0].isdigit()


def test_type_hints_list_the_accepted_words() -> None:
    hints = typing.get_type_hints(Session.record)
    assert set(typing.get_args(typing.get_args(hints["blame"])[0])) == {
        "agent",
        "harness",
        "unknown",
    }
    progress = typing.get_type_hints(Session.progress.fget)["return"]  # type: ignore[attr-defined]
    assert set(typing.get_args(progress)) == {
        "constrained_out",
        "exhausted",
        "plateau",
        "progressing",
    }
    assert Decision.__doc__
