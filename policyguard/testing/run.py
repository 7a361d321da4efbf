"""Tests files → results: each test with a guard, a store and a clock of its own."""

from __future__ import annotations

import time
from collections.abc import Iterable
from pathlib import Path

from policyguard.report.results import (
    Coverage,
    Failure,
    FileResult,
    Mismatch,
    TestReport,
    TestResult,
)
from policyguard.testing.reached import Reached
from policyguard.testing.read import Read, read
from policyguard.testing.recorded import replay
from policyguard.testing.story import tell
from policyguard.testing.suite import Suite, Test


def run_files(files: Iterable[Path], *, coverage: bool = False) -> TestReport:
    """Run all tests of these files. One that is broken keeps no other from being run."""
    begun = time.monotonic()
    results: list[FileResult] = []
    reached: dict[str, Reached] = {}
    for file in files:
        result, found = run_read(str(file), read(file))
        results.append(result)
        if found is not None:
            _add(reached, found)
    return TestReport(
        files=tuple(results),
        seconds=time.monotonic() - begun,
        coverage=_coverage(reached) if coverage else None,
    )


def run_read(file: str, made: Read) -> tuple[FileResult, Reached | None]:
    """Run what a file was read to. Also what its tests reached, where they could be run."""
    suite = made.suite
    if suite is None:
        return FileResult(file=file, errors=tuple(made.diagnostics)), None
    reached = Reached(suite.compiled)
    tests = tuple(run_test(suite, test, reached) for test in suite.tests)
    return FileResult(file=file, policy=suite.compiled.policy.name, tests=tests), reached


def run_test(suite: Suite, test: Test, reached: Reached | None = None) -> TestResult:
    """Run one test. Whatever goes wrong in it is a failure; nothing is raised."""
    begun = time.monotonic()
    reached = Reached(suite.compiled) if reached is None else reached
    try:
        failures = tuple(_failures(suite, test, reached))
    except Exception as error:  # noqa: BLE001 - a defect of ours in one test must not end the others
        failures = (_defect(suite, test, error),)
    return TestResult(
        name=test.name,
        line=suite.where((*test.path, "name")).line,
        seconds=time.monotonic() - begun,
        failures=failures,
    )


def _failures(suite: Suite, test: Test, reached: Reached) -> Iterable[Failure]:
    if test.trace is not None:
        return replay(suite, test, reached)
    failure = tell(suite, test, reached)
    return [] if failure is None else [failure]


def _defect(suite: Suite, test: Test, error: Exception) -> Failure:
    span = suite.where((*test.path, "name"))
    found = f"a defect of policyguard: {type(error).__name__}: {error}"
    return Failure(
        span=span,
        lines=suite.lines(span),
        step="the test",
        mismatches=(Mismatch("internal", "a test that runs", found),),
    )


def _add(known: dict[str, Reached], found: Reached) -> None:
    """Tests of one policy count together, in however many files they stand."""
    before = known.setdefault(found.file, found)
    if before is not found:
        before.add(found)


def _coverage(reached: dict[str, Reached]) -> tuple[Coverage, ...]:
    return tuple(one.coverage() for one in reached.values())
