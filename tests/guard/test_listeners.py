"""`guard.on`: listeners receive events in order, independently of each other."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path

import pytest

from policyguard import Guard
from policyguard.model.event import Completed, Event, Refused, SessionStarted

POLICY = "policyguard: 1\nname: p\nlimits: {tools: {shut: {no_progress: {max: 1, refuse: tool}}}}\n"
META = "outcomes: {meta: {non_advancing: [n]}}\nrules: {no: {tools: [no]}}\n"


def load(tmp_path: Path) -> Guard:
    file = tmp_path / "policy.yaml"
    file.write_text(POLICY + META)
    return Guard.load(file)


def test_listener_receives_the_chosen_events_until_unsubscribed(tmp_path: Path) -> None:
    guard = load(tmp_path)
    all_events: list[Event] = []
    selected_events: list[Event] = []
    guard.on(all_events.append)
    unsubscribe = guard.on(selected_events.append, Refused, Completed)
    session = guard.session("s")
    session.record(session.check("yes"), result="a")
    session.check("no")
    unsubscribe()
    session.check("no")
    assert [type(event).__name__ for event in all_events] == [
        "SessionStarted",
        "Admitted",
        "Completed",
        "Refused",
        "Refused",
    ]
    assert [type(event) for event in selected_events] == [Completed, Refused]
    assert isinstance(all_events[0], SessionStarted)


def test_failing_listener_does_not_affect_others(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    guard = load(tmp_path)
    events: list[Event] = []

    def fail(event: Event) -> None:
        raise RuntimeError("out of order")

    guard.on(fail)
    guard.on(events.append)
    with caplog.at_level(logging.ERROR, "policyguard"):
        assert guard.session("s").check("yes").allowed
    assert len(events) == 2
    assert "a listener failed on SessionStarted" in caplog.text


def test_disabled_tools_are_listed(tmp_path: Path) -> None:
    session = load(tmp_path).session("s")
    assert session.disabled == {}
    session.record(session.check("shut", {"q": 1}), result="none", meta={"n": True})
    assert session.disabled == {
        "shut": "this tool has made no progress once (limits/tools:shut/no_progress, "
        "for the rest of this run)"
    }
    assert not session.check("shut", {"q": 2}).allowed


def test_async_listener_receives_events_while_the_session_is_open(tmp_path: Path) -> None:
    async def main() -> list[str]:
        names: list[str] = []
        has_result = asyncio.Event()

        async def listen(event: Event) -> None:
            names.append(type(event).__name__)
            if isinstance(event, Completed):
                has_result.set()

        guard = load(tmp_path)
        guard.on(listen)
        session = guard.session("s")
        session.record(session.check("yes"), result="a")
        await asyncio.wait_for(has_result.wait(), 10)
        return names

    assert asyncio.run(main()) == ["SessionStarted", "Admitted", "Completed"]


def test_async_listener_may_use_a_session_of_its_own(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The end of its session waits for listeners, though not for this one, which waits for it."""

    async def main() -> list[bool]:
        allowed: list[bool] = []
        guard = load(tmp_path)

        async def listen(event: Refused) -> None:
            async with guard.session(f"about {event.session}") as session:
                allowed.append((await session.acheck("yes")).allowed)

        guard.on(listen, Refused)
        async with guard.session("s") as session:
            await session.acheck("no")
        await guard.aclose()
        return allowed

    assert asyncio.run(asyncio.wait_for(main(), 10)) == [True]
    assert caplog.records == []
