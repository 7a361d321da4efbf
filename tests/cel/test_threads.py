"""Programs share no state: many threads and programs do not affect each other."""

from __future__ import annotations

import sys
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import pytest

from policyguard import cel

DECLARATIONS = cel.Declarations({"call": cel.map_of(cel.STRING, cel.DYN)})
THREADS = 8


@pytest.fixture(autouse=True)
def _switch_often() -> object:
    """Switch threads a thousand times as often as usual."""
    interval = sys.getswitchinterval()
    sys.setswitchinterval(5e-6)
    yield
    sys.setswitchinterval(interval)


def sources() -> list[tuple[str, int]]:
    """Return expressions that differ only in their constants, with their results."""
    return [
        (
            f"call.items.filter(i, i % {n + 2} == {n % 2} && (call.no || i >= 0)).size() + "
            f"call.items.map(i, i * {n}).filter(i, i > {50 * n}).size()",
            len([i for i in range(100) if i % (n + 2) == n % 2])
            + len([i for i in range(100) if i * n > 50 * n]),
        )
        for n in range(1, 25)
    ]


def test_evaluating_in_many_threads() -> None:
    programs = [(cel.compile(source, DECLARATIONS), expected) for source, expected in sources()]
    barrier = Barrier(THREADS)

    def work(offset: int) -> list[bool]:
        barrier.wait()
        results = []
        for round_ in range(40):
            program, expected = programs[(offset * 5 + round_) % len(programs)]
            results.append(program(call={"items": list(range(100)), "no": False}) == expected)
        return results

    with ThreadPoolExecutor(THREADS) as pool:
        assert all(all(results) for results in pool.map(work, range(THREADS)))


def test_errors_in_many_threads() -> None:
    program = cel.compile("call.items.all(i, i / call.by < 3) || call.flag", DECLARATIONS)
    barrier = Barrier(THREADS)

    def work(number: int) -> bool:
        barrier.wait()
        for _ in range(100):
            call = {"items": [1, 2], "by": number % 2, "flag": number % 4 == 0}
            try:
                found: object = program(call=call)
            except cel.CelEvaluationError as error:
                found = error.kind
            expected: object = True
            if number % 2 == 0 and number % 4:
                expected = "division-by-zero"
            if found != expected:
                return False
        return True

    with ThreadPoolExecutor(THREADS) as pool:
        assert all(pool.map(work, range(THREADS)))


def test_compiling_in_many_threads() -> None:
    barrier = Barrier(THREADS)

    def work(offset: int) -> bool:
        barrier.wait()
        for round_ in range(12):
            source, expected = sources()[(offset * 3 + round_) % len(sources())]
            program = cel.compile(source, DECLARATIONS)
            if program(call={"items": list(range(100)), "no": False}) != expected:
                return False
            with pytest.raises(cel.CelError, match="unknown variable `cal`"):
                cel.compile(source.replace("call.no", "cal.no"), DECLARATIONS)
        return True

    with ThreadPoolExecutor(THREADS) as pool:
        assert all(pool.map(work, range(THREADS)))
