"""What a host can see and type: names, reprs, times, and who a session belongs to."""

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


def public(thing: object) -> set[str]:
    return {name for name in dir(thing) if not name.startswith("_")}


def test_a_guard_shows_its_documented_members_only(tmp_path: Path) -> None:
    assert public(load(tmp_path)) == {
        "close",
        "closed",
        "constraints",
        "diagnostics",
        "digest",
        "load",
        "on",
        "policy",
        "restore",
        "revoke",
        "session",
        "snapshot",
        "tool",
    }


def test_a_session_shows_its_documented_members_only(tmp_path: Path) -> None:
    assert public(load(tmp_path).session("s")) == {
        "acheck",
        "approve",
        "arecord",
        "arun",
        "check",
        "close",
        "closed",
        "disabled",
        "done",
        "end",
        "grant",
        "guard",
        "id",
        "preview",
        "progress",
        "record",
        "release",
        "run",
        "spend",
        "turn",
    }


def test_reprs_say_what_a_person_looks_for(tmp_path: Path) -> None:
    guard = load(tmp_path)
    session = guard.session("s")
    allowed, refused = session.check("x", {"secret": 1}), session.check("no")
    recorded = session.record(allowed, error="wrong")
    assert repr(guard) == "<Guard policy='surface' sessions=1>"
    assert repr(session) == "<Session 's' calls=2>"
    assert repr(allowed) == "<Decision c1 'x': allow>"
    assert repr(refused) == "<Decision c2 'no': block (rules/no)>"
    assert repr(recorded) == "<Recorded failure, blame unknown>"
    assert repr(session.record(allowed, result="")) == "<Recorded success, not counted>"
    session.close()
    assert repr(session) == "<Session 's' calls=2 closed>"
    guard.close()
    assert repr(guard) == "<Guard policy='surface' sessions=0 closed>"


def test_a_time_is_nanoseconds_or_an_aware_datetime(tmp_path: Path) -> None:
    events: list[Event] = []
    guard = load(tmp_path)
    guard.on(events.append, Admitted, Completed)
    session = guard.session("s")
    then = datetime.now(UTC).replace(microsecond=123456) + timedelta(seconds=2)
    at = (int(then.timestamp()) * 10**6 + 123456) * 1000
    assert session.preview("x", at=then).allowed
    decision = session.check("x", at=then)
    session.record(decision, result="fine", at=then + timedelta(seconds=2))
    assert [event.at for event in events] == [at, at + 2 * 10**9]
    with pytest.raises(ValueError, match="`at` is a datetime without a time zone"):
        session.check("x", at=datetime(2030, 1, 1))


def test_a_duration_is_seconds_or_a_timedelta(tmp_path: Path) -> None:
    events: list[Event] = []
    guard = load(tmp_path)
    guard.on(events.append, Completed, Granted)
    session = guard.session("s")
    waited = timedelta(milliseconds=1500)
    session.record(session.check("x"), error="wait", duration=waited, retry_after=waited)
    session.grant("task", waited, by="ann")
    completed, granted = events
    assert isinstance(completed, Completed)
    assert isinstance(granted, Granted)
    assert (completed.duration, completed.retry_after, granted.amount) == (1.5, 1.5, 1.5)


@pytest.mark.parametrize("durable", [True, False])
@pytest.mark.parametrize("who", ["user", "agent", "project"])
def test_a_session_is_not_reopened_for_somebody_else(
    tmp_path: Path, who: str, durable: bool
) -> None:
    guard = load(tmp_path, store=tmp_path / "store.db" if durable else None)
    session = guard.session("s", **{who: "ann"})
    assert guard.session("s") is session
    assert guard.session("s", **{who: "ann"}) is session
    for _ in range(2):
        with pytest.raises(ValueError, match=f"session `s` has {who} `ann`, not `bob`"):
            guard.session("s", **{who: "bob"})
        session.close()
    assert guard.session("s", **{who: "ann"}).check("x").allowed


def test_every_error_has_one_base() -> None:
    errors = [getattr(policyguard, name) for name in policyguard.__all__]
    errors = [one for one in errors if isinstance(one, type) and issubclass(one, Exception)]
    assert len(errors) > 8
    assert all(issubclass(one, PolicyguardError) for one in errors)


def test_the_version_is_that_of_the_distribution() -> None:
    assert policyguard.__version__.split(".")[0].isdigit()


def test_types_name_the_words_that_a_host_may_use() -> None:
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
