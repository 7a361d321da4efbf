"""Limits hold exactly when many threads, tasks and forked processes make calls."""

from __future__ import annotations

import asyncio
import contextlib
import math
import os
import signal
import threading
from collections import UserDict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from policyguard import CallRefused, Guard
from policyguard.guard.session import Session
from policyguard.model.event import Admitted, Completed, Event
from tests.examples import examples

BUDGET = """
policyguard: 1
name: budget
budgets:
  calls: {calls: 500, per: %s}
"""

STORES = ["memory", "sqlite"]


def _guard(folder: Path, policy: str, store: str = "memory") -> Guard:
    file = folder / "policy.yaml"
    file.write_text(policy)
    return Guard.load(file, store=folder / "state" / "store.db" if store == "sqlite" else None)


def _sum_of_threads(thread_count: int, make_calls: Callable[[int], int]) -> int:
    """Return the sum of the results of threads that start together."""
    start = threading.Barrier(thread_count)
    results: list[int] = []

    def run_thread(index: int) -> None:
        start.wait()
        results.append(make_calls(index))

    threads = [threading.Thread(target=run_thread, args=(index,)) for index in range(thread_count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(results) == thread_count
    return sum(results)


@pytest.mark.parametrize("store", STORES)
@pytest.mark.parametrize(
    "scope",
    [
        "session",
        "project",
        pytest.param("global", marks=pytest.mark.slow),
        pytest.param("turn", marks=pytest.mark.slow),
    ],
)
def test_sixteen_threads_share_one_budget_exactly(tmp_path: Path, scope: str, store: str) -> None:
    session = _guard(tmp_path, BUDGET % scope, store).session("one")

    def make_calls(thread_number: int) -> int:
        count = 0
        for number_of_call in range(100):
            decision = session.check("tool", {"thread": thread_number, "number": number_of_call})
            if decision.allowed:
                count += 1
                if number_of_call % 2:
                    session.record(decision, result="ok")
        return count

    assert _sum_of_threads(16, make_calls) == 500


@pytest.mark.parametrize("store", STORES)
@pytest.mark.parametrize("scope", ["session", "project"])
def test_tree_of_agents_with_batches_charges_exactly(
    tmp_path: Path, scope: str, store: str
) -> None:
    """Sixteen agents under one parent, each with a sub-agent; half of the calls never run."""
    guard = _guard(tmp_path, BUDGET % scope, store)
    root = guard.session("root", project="p")

    def make_calls(thread_number: int) -> int:
        agent = guard.session(f"agent{thread_number}", parent=root, project="p")
        recorded = 0
        for turn in range(8):
            session = (
                agent
                if turn % 2
                else guard.session(f"sub{thread_number}", parent=agent, project="p")
            )
            batch = [
                session.check("tool", {"n": number_of_call, "turn": turn}, batch=f"b{turn}")
                for number_of_call in range(6)
            ]
            for number_of_call, decision in enumerate(batch):
                if not decision.allowed:
                    assert decision.violations[0].id == "budgets/calls"
                elif number_of_call % 2:
                    session.release(decision)
                else:
                    recorded += 1
                    session.record(decision, result="ok")
        return recorded

    recorded = _sum_of_threads(16, make_calls)
    remaining = 0
    while root.check("tool", {"last": remaining}).allowed:
        remaining += 1
    assert recorded + remaining == 500


@pytest.mark.parametrize("store", STORES)
def test_concurrent_calls_never_exceed_the_limit(tmp_path: Path, store: str) -> None:
    policy = "policyguard: 1\nname: concurrent\nbudgets: {b: {concurrent: 5, per: project}}\n"
    guard = _guard(tmp_path, policy, store)
    running = [0]
    peak = [0]
    lock = threading.Lock()

    def make_calls(thread_number: int) -> int:
        session = guard.session(f"s{thread_number}", project="p")
        done = 0
        while done < 20:
            decision = session.check("tool", {"n": done})
            if not decision.allowed:
                continue
            with lock:
                running[0] += 1
                peak[0] = max(peak[0], running[0])
            done += 1
            with lock:
                running[0] -= 1
            (session.release if done % 3 else session.record)(decision)
        return done

    assert _sum_of_threads(8, make_calls) == 160
    assert peak[0] <= 5
    session = guard.session("last", project="p")
    assert [session.check("tool", {"n": n}).allowed for n in range(6)] == [True] * 5 + [False]


@pytest.mark.parametrize("store", STORES)
@pytest.mark.parametrize("scope", ["session", "project"])
def test_two_hundred_tasks_share_one_budget_exactly(tmp_path: Path, scope: str, store: str) -> None:
    """Some calls fail and some are cancelled; all that began are charged."""
    guard = _guard(tmp_path, BUDGET % scope, store)
    session = guard.session("one", project="p")
    ran = [0]

    async def tool(number: int) -> str:
        ran[0] += 1
        await asyncio.sleep(0)
        if number % 7 == 0:
            await asyncio.sleep(60)
        if number % 5 == 0:
            raise OSError("no")
        return "fine"

    async def run_task(index: int, session: Session) -> None:
        for offset in range(4):
            number = index * 4 + offset
            call = session.arun("tool", {"n": number}, lambda number=number: tool(number))
            with contextlib.suppress(CallRefused, OSError, TimeoutError):
                await asyncio.wait_for(call, 0.2 if number % 7 == 0 else None)

    async def run_all() -> None:
        await asyncio.gather(*(run_task(index, session) for index in range(200)))

    asyncio.run(run_all())
    remaining = 0
    while session.check("tool", {"last": remaining}).allowed:
        remaining += 1
    assert ran[0] + remaining == 500
    assert ran[0] >= 300


def test_many_threads_write_one_chain(tmp_path: Path) -> None:
    guard = _guard(tmp_path, BUDGET % "session", "sqlite")
    session = guard.session("one")

    def make_calls(thread_number: int) -> int:
        for number_of_call in range(50):
            decision = session.check("tool", {"thread": thread_number, "number": number_of_call})
            session.record(decision, result=f"{thread_number}.{number_of_call}")
        return 50

    assert _sum_of_threads(8, make_calls) == 400
    assert guard._journal is not None
    events = [type(event) for event in guard._journal.read_events("one")]
    assert [events.count(kind) for kind in (Admitted, Completed)] == [400, 400]


@pytest.mark.parametrize("store", STORES)
def test_process_can_fork_while_its_threads_make_calls(tmp_path: Path, store: str) -> None:
    """The child has no such threads, and no half-counted calls."""
    guard = _guard(tmp_path, BUDGET % "project", store)
    busy = guard.session("busy", project="p")
    stop = threading.Event()

    def make_calls() -> None:
        number = 0
        while not stop.is_set():
            number += 1
            busy.release(busy.check("tool", {"number": number}))

    thread = threading.Thread(target=make_calls)
    thread.start()
    try:
        for number in range(examples(20)):
            assert _check_in_forked_child(guard, f"child {number}") == 0
    finally:
        stop.set()
        thread.join()
    assert busy.check("tool", {}).allowed


def _check_in_forked_child(guard: Guard, session: str) -> int:
    """Return the exit code of a child that makes a call; SIGALRM ends a stuck one."""
    child = os.fork()
    if not child:
        signal.alarm(20)
        decision = guard.session(session, project="p").check("tool", {"child": session})
        os._exit(0 if decision.allowed else 1)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def test_fork_does_not_deadlock_with_guards_that_call_each_other(tmp_path: Path) -> None:
    one, two = _guard(tmp_path, BUDGET % "session"), _guard(tmp_path, BUDGET % "session")
    listener_called, stop = threading.Event(), threading.Event()

    def preview_other(_: Event) -> None:
        listener_called.set()
        stop.wait(20)
        two.session("s").preview("tool")

    one.on(preview_other, Admitted)
    thread = threading.Thread(target=one.session("s").check, args=("tool",))
    thread.start()
    listener_called.wait(20)
    with two._lock:
        stop.set()
        assert _check_in_forked_child(two, "child") == 0
    thread.join(20)
    assert not thread.is_alive()


@pytest.mark.parametrize("options", [{}, {"call": "own"}, {"server": "s"}])
@pytest.mark.parametrize("args", [{"a": [[1]]}, {"a": Path}, {"a": math.nan}, {"a": UserDict()}])
def test_arguments_are_read_outside_the_lock(
    args: dict[str, Any], options: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    guard = Guard.load("core")
    identify, held = guard._evaluator.identify, []

    def note_lock(*call: Any) -> Any:
        held.append(guard._lock._is_owned())  # type: ignore[attr-defined]
        return identify(*call)

    monkeypatch.setattr(guard._evaluator, "identify", note_lock)
    guard.session("s").check("t", args, **options)
    assert held
    assert not any(held)
