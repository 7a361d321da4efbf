"""The places in `at_once` budgets of calls that have run out of time."""

from __future__ import annotations

import asyncio
import threading

import pytest

from policyguard import ToolTimeoutError
from policyguard.model.event import Ended
from tests.guard.running.time_limits import PATIENCE, Open, Told, stuck


def test_a_call_that_goes_on_keeps_its_place_until_it_ends(
    opened: Open, told: Told, gate: threading.Event
) -> None:
    more = (
        "budgets: {one: {concurrent: 1, tools: [slow]}}\nrules: {r: {when: session.running > 1}}\n"
    )
    session = opened(more)
    with pytest.raises(ToolTimeoutError):
        session.run("slow", {}, stuck(gate))
    assert [one.id for one in session.preview("slow").violations] == ["budgets/one"]
    assert session.check("other").allowed
    assert not session.preview("other").allowed, "two are running"
    gate.set()
    told.wait(Ended)
    assert session.preview("slow").allowed


def test_an_async_call_has_given_its_place_back_when_its_caller_goes_on(opened: Open) -> None:
    session = opened("budgets: {one: {concurrent: 1}}\n")

    async def main() -> None:
        for _ in range(2):
            with pytest.raises(ToolTimeoutError):
                await session.arun("slow", {}, lambda: asyncio.sleep(PATIENCE))

    asyncio.run(main())


def test_a_call_that_never_ends_gives_its_place_back_in_the_end(
    opened: Open, told: Told, gate: threading.Event
) -> None:
    clock = [10**18]
    session = opened("budgets: {one: {concurrent: 1, tools: [slow]}}\n", clock=lambda: clock[0])
    with pytest.raises(ToolTimeoutError):
        session.run("slow", {}, stuck(gate))
    clock[0] += 3600 * 10**9
    assert session.check("other").allowed
    assert not session.check("slow").allowed
    clock[0] += 10**9
    assert not session.check("slow").allowed
    assert session.check("slow").allowed, "the last refusal has cleared it"
    gate.set()
    told.wait(Ended)
    assert not session.preview("slow").allowed, "the place is another call's by now"


def test_who_folds_the_events_knows_which_places_are_taken(
    opened: Open, told: Told, gate: threading.Event
) -> None:
    more = "budgets: {one: {concurrent: 1, tools: [slow]}}\n"
    session = opened(more)
    with pytest.raises(ToolTimeoutError):
        session.run("slow", {}, stuck(gate))
    again = opened(more)
    for event in list(told.events):
        again.guard._state.fold(event)
    assert not again.preview("slow").allowed
    again.guard._state.fold(Ended(session="a", call="c1"))
    assert again.preview("slow").allowed
    gate.set()
    told.wait(Ended)
