"""The pack `reasoning-loop` filters like its original and keeps its budgets (SYSTEMS, §5)."""

from __future__ import annotations

import json
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from policyguard import Guard, Session
from policyguard.compiler import CompiledPolicy, compile_policy
from policyguard.model.event import Completed, Event, Refused

IGNORED = ("timestamp", "requestId")


class Filter:
    """The article's: blocks what stands twice among the last three calls that ran.

    With what it asks for beside: ignored fields, and prices within 5 % of the first are the same.
    """

    def __init__(self) -> None:
        self.history: list[tuple[str, float]] = []
        self.anchors: dict[str, list[float]] = {}

    def admits(self, args: dict[str, Any]) -> bool:
        rest = {name: value for name, value in args.items() if name not in (*IGNORED, "price")}
        kind = json.dumps([rest, "price" in args], sort_keys=True)
        price = args.get("price", 0.0)
        anchors = self.anchors.setdefault(kind, [])
        anchor = next((one for one in anchors if abs(price - one) <= 0.05 * abs(one)), price)
        if self.history[-3:].count((kind, anchor)) >= 2:
            return False
        self.history.append((kind, anchor))
        if anchor not in anchors:
            anchors.append(anchor)
        return True


COMPILED = compile_policy("reasoning-loop")


def _session(events: list[Event] | None = None, compiled: CompiledPolicy = COMPILED) -> Session:
    guard = Guard(compiled, clock=lambda: 1_772_800_000 * 10**9)
    if events is not None:
        guard.on(events.append)
    return guard.session("s")


def _admitted(session: Session, args: dict[str, Any]) -> bool:
    decision = session.check("find", args)
    if decision.allowed:
        session.record(decision, result="SUCCESS: found")
    return decision.allowed


ARGS = st.fixed_dictionaries(
    {"query": st.sampled_from(["a", {"x": "1", "y": ["b"]}])},
    optional={
        "price": st.sampled_from([300, 301, 314.0, 316, 330, -300, 0]),
        "timestamp": st.integers(0, 10),
        "requestId": st.text(max_size=2),
    },
)


@settings(deadline=None)  # cores are shared
@given(st.lists(ARGS, max_size=60))
def test_it_admits_what_the_filter_admits(calls: list[dict[str, Any]]) -> None:
    session, reference = _session(), Filter()
    for number, args in enumerate(calls):
        assert _admitted(session, args) is reference.admits(args), (number, args)


@settings(deadline=None)  # cores are shared
@given(st.lists(st.floats(100, 200), min_size=1, max_size=30))
def test_equal_prices_are_within_5_percent_of_the_first(
    prices: list[float],
) -> None:
    session = _session()
    firsts: dict[str, float] = {}
    for price in prices:
        decision = session.check("find", {"price": price})
        first = firsts.setdefault(decision.fingerprint, price)
        assert abs(price - first) <= 0.05 * first
        session.turn()


@pytest.mark.parametrize(
    ("tool", "most"),
    [
        ("search_inventory", 4),
        ("check_availability", 3),
        ("confirm_reservation", 1),
        ("send_notification", 2),
    ],
)
def test_a_budget_holds_for_calls_made_at_the_same_time(tool: str, most: int) -> None:
    session = _session()
    start = threading.Barrier(16)
    admitted: list[bool] = []

    def work(number: int) -> None:
        start.wait()
        admitted.append(session.check(tool, {"query": f"q{number}"}, batch="m1").allowed)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sum(admitted) == most


def test_what_happened_can_be_observed() -> None:
    events: list[Event] = []
    session = _session(events)
    for text in ("PENDING: 1 of 2", "PENDING: 2 of 2", "SUCCESS: done", "FAILED: gone"):
        session.record(session.check("job", {"is": text}), result=text)
    for _ in range(3):
        decision = session.check("find", {"query": "a"})
        if decision.allowed:
            session.record(decision, result="SUCCESS: x")
    session.check("confirm_reservation", {"room": "1"})
    session.check("confirm_reservation", {"room": "7"})
    refused = [event.violations for event in events if isinstance(event, Refused)]
    assert refused == [("limits/default/repeat",), ("budgets/confirm_reservation",)]
    states = [(event.ok, event.state) for event in events if isinstance(event, Completed)]
    assert states[:4] == [(True, "pending"), (True, "pending"), (True, ""), (False, "")]


def test_a_call_that_takes_too_long_is_a_timeout(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REASONING_LOOP_CALL_MS", "50")
    events: list[Event] = []
    session = _session(events, compile_policy("reasoning-loop"))
    with pytest.raises(TimeoutError):
        session.run("slow", {}, lambda: time.sleep(0.5))
    (done,) = (event for event in events if isinstance(event, Completed))
    assert (done.ok, done.timeout_by) == (False, "limits/default/timeout")


def test_envelope_tells_whether_a_result_is_final() -> None:
    session = _session()
    recorded = session.record(session.check("a"), result="FAILED: no room")
    assert recorded.structured["state"] == "failure"
    assert recorded.structured["payload"] == "no room"
    recorded = session.record(session.check("b"), result="still at it", retry_after=2.5)
    assert recorded.text == "PENDING: still at it"
    assert recorded.structured["state"] == "pending"
    assert recorded.structured["payload"] == "still at it"
    assert recorded.structured["metadata"]["retry_after"] == 2.5


@pytest.mark.parametrize("mark", ["", "SUCCESS: "])
def test_a_long_result_is_kept_whole(mark: str) -> None:
    session = _session()
    recorded = session.record(session.check("a"), result=mark + "x" * 200_000)
    assert recorded.text == (mark or "PENDING: ") + "x" * 200_000


def test_a_grant_is_written_down(tmp_path: Path) -> None:
    session = Guard.load("reasoning-loop", store=tmp_path / "store.db").session("s")
    session.check("confirm_reservation", {"room": "1"})
    assert not session.check("confirm_reservation", {"room": "7"}).allowed
    session.grant("confirm_reservation", by="ann")
    assert session.check("confirm_reservation", {"room": "7"}).allowed
    session.end()
    (journal,) = (tmp_path / "journal").glob("*.jsonl")
    granted = [json.loads(line) for line in journal.read_text().splitlines() if "granted" in line]
    assert [(line["budget"], line["amount"], line["by"]) for line in granted] == [
        ("budgets/confirm_reservation", 1.0, "ann")
    ]
