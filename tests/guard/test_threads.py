"""A hard limit is hard, whoever asks at the same time."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from policyguard import CallRefused, Guard
from policyguard.guard.session import Session
from policyguard.model.event import Admitted, Completed, Event

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


def _together(number: int, work: Callable[[int], int]) -> int:
    """What threads that start at once give in all."""
    start = threading.Barrier(number)
    results: list[int] = []

    def begin(which: int) -> None:
        start.wait()
        results.append(work(which))

    threads = [threading.Thread(target=begin, args=(which,)) for which in range(number)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(results) == number
    return sum(results)


@pytest.mark.parametrize("store", STORES)
@pytest.mark.parametrize("scope", ["session", "project", "global", "turn"])
def test_sixteen_threads_share_one_budget_exactly(tmp_path: Path, scope: str, store: str) -> None:
    session = _guard(tmp_path, BUDGET % scope, store).session("one")

    def work(number: int) -> int:
        count = 0
        for place in range(100):
            decision = session.check("tool", {"thread": number, "place": place})
            if decision.allowed:
                count += 1
                if place % 2:
                    session.record(decision, result="ok")
        return count

    assert _together(16, work) == 500


@pytest.mark.parametrize("store", STORES)
@pytest.mark.parametrize("scope", ["session", "project"])
def test_a_tree_of_agents_with_batches_draws_exactly(
    tmp_path: Path, scope: str, store: str
) -> None:
    """Sixteen agents under one parent, each with a sub-agent; half of the calls never run."""
    guard = _guard(tmp_path, BUDGET % scope, store)
    root = guard.session("root", project="p")

    def work(number: int) -> int:
        agent = guard.session(f"agent{number}", parent=root, project="p")
        kept = 0
        for turn in range(8):
            own = agent if turn % 2 else guard.session(f"sub{number}", parent=agent, project="p")
            batch = [
                own.check("tool", {"n": place, "turn": turn}, batch=f"b{turn}")
                for place in range(6)
            ]
            for place, decision in enumerate(batch):
                if not decision.allowed:
                    assert decision.violations[0].id == "budgets/calls"
                elif place % 2:
                    own.release(decision)
                else:
                    kept += 1
                    own.record(decision, result="ok")
        return kept

    kept = _together(16, work)
    left = 0
    while root.check("tool", {"last": left}).allowed:
        left += 1
    assert kept + left == 500


@pytest.mark.parametrize("store", STORES)
def test_calls_at_once_are_never_more_than_the_limit(tmp_path: Path, store: str) -> None:
    policy = "policyguard: 1\nname: at_once\nbudgets: {b: {concurrent: 5, per: project}}\n"
    guard = _guard(tmp_path, policy, store)
    running = [0]
    most = [0]
    lock = threading.Lock()

    def work(number: int) -> int:
        session = guard.session(f"s{number}", project="p")
        done = 0
        while done < 20:
            decision = session.check("tool", {"n": done})
            if not decision.allowed:
                continue
            with lock:
                running[0] += 1
                most[0] = max(most[0], running[0])
            done += 1
            with lock:
                running[0] -= 1
            (session.release if done % 3 else session.record)(decision)
        return done

    assert _together(8, work) == 160
    assert most[0] <= 5
    session = guard.session("last", project="p")
    assert [session.check("tool", {"n": n}).allowed for n in range(6)] == [True] * 5 + [False]


@pytest.mark.parametrize("store", STORES)
@pytest.mark.parametrize("scope", ["session", "project"])
def test_two_hundred_tasks_share_one_budget_exactly(tmp_path: Path, scope: str, store: str) -> None:
    """Some calls fail, which counts; some are cancelled, which gives them back."""
    guard = _guard(tmp_path, BUDGET % scope, store)
    session = guard.session("one", project="p")
    ran = [0]

    async def tool(number: int) -> str:
        await asyncio.sleep(0)
        if number % 7 == 0:
            await asyncio.sleep(60)
        ran[0] += 1
        if number % 5 == 0:
            raise OSError("no")
        return "fine"

    async def task(which: int, session: Session) -> None:
        for place in range(4):
            number = which * 4 + place
            call = session.arun("tool", {"n": number}, lambda number=number: tool(number))
            with contextlib.suppress(CallRefused, OSError, TimeoutError):
                await asyncio.wait_for(call, 0.5 if number % 7 == 0 else None)

    async def all_of_them() -> None:
        await asyncio.gather(*(task(which, session) for which in range(200)))

    asyncio.run(all_of_them())
    left = 0
    while session.check("tool", {"last": left}).allowed:
        left += 1
    assert ran[0] + left == 500
    assert ran[0] >= 300


def test_many_threads_write_one_chain(tmp_path: Path) -> None:
    guard = _guard(tmp_path, BUDGET % "session", "sqlite")
    session = guard.session("one")

    def work(number: int) -> int:
        for place in range(50):
            decision = session.check("tool", {"thread": number, "place": place})
            session.record(decision, result=f"{number}.{place}")
        return 50

    assert _together(8, work) == 400
    assert guard._journal is not None
    told = [type(event) for event in guard._journal.read_events("one")]
    assert [told.count(kind) for kind in (Admitted, Completed)] == [400, 400]


@pytest.mark.parametrize("store", STORES)
def test_a_process_forks_while_its_threads_call(tmp_path: Path, store: str) -> None:
    """The child has none of those threads, and none of their calls is half counted in it."""
    guard = _guard(tmp_path, BUDGET % "project", store)
    busy = guard.session("busy", project="p")
    over = threading.Event()

    def work() -> None:
        number = 0
        while not over.is_set():
            number += 1
            busy.release(busy.check("tool", {"number": number}))

    thread = threading.Thread(target=work)
    thread.start()
    try:
        for number in range(20):
            assert _in_child(guard, f"child {number}") == 0
    finally:
        over.set()
        thread.join()
    assert busy.check("tool", {}).allowed


def _in_child(guard: Guard, session: str) -> int:
    """How a forked child ends that has a call allowed; a stuck one by SIGALRM."""
    child = os.fork()
    if not child:
        signal.alarm(20)
        decision = guard.session(session, project="p").check("tool", {"child": session})
        os._exit(0 if decision.allowed else 1)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def test_a_fork_does_not_wait_for_guards_that_wait_for_each_other(tmp_path: Path) -> None:
    one, two = _guard(tmp_path, BUDGET % "session"), _guard(tmp_path, BUDGET % "session")
    reached, over = threading.Event(), threading.Event()

    def ask_the_other(_: Event) -> None:
        reached.set()
        over.wait(20)
        two.session("s").preview("tool")

    one.on(ask_the_other, Admitted)
    thread = threading.Thread(target=one.session("s").check, args=("tool",))
    thread.start()
    reached.wait(20)
    with two._lock:
        over.set()
        assert _in_child(two, "child") == 0
    thread.join(20)
    assert not thread.is_alive()
