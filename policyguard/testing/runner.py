"""Tests files → results: each test with a guard, a store and a clock of its own."""

from __future__ import annotations

import time
from collections.abc import Iterable
from pathlib import Path

from policyguard.report.policy_tests.results import (
    Coverage,
    Failure,
    FileResult,
    Mismatch,
    TestReport,
    TestResult,
)
from policyguard.testing.coverage import CoverageRecorder
from policyguard.testing.step_runner import run_steps
from policyguard.testing.suite import Suite, Test
from policyguard.testing.suite_reader import ReadResult, read_suite
from policyguard.testing.trace_runner import run_trace


def run_files(files: Iterable[Path], *, coverage: bool = False) -> TestReport:
    """Run all tests of these files. One that is broken keeps no other from being run."""
    begun = time.monotonic()
    results: list[FileResult] = []
    reached: dict[str, CoverageRecorder] = {}
    for file in files:
        result, found = run_suite(str(file), read_suite(file))
        results.append(result)
        if found is not None:
            _merge_coverage(reached, found)
    return TestReport(
        files=tuple(results),
        seconds=time.monotonic() - begun,
        coverage=_build_coverage(reached) if coverage else None,
    )


def run_suite(file: str, read: ReadResult) -> tuple[FileResult, CoverageRecorder | None]:
    """Run what a file was read to. Also what its tests reached, where they could be run."""
    suite = read.suite
    if suite is None:
        return FileResult(file=file, errors=tuple(read.diagnostics)), None
    reached = CoverageRecorder(suite.compiled)
    tests = tuple(run_test(suite, test, reached) for test in suite.tests)
    return FileResult(file=file, policy=suite.compiled.policy.name, tests=tests), reached


def run_test(suite: Suite, test: Test, coverage: CoverageRecorder | None = None) -> TestResult:
    """Run one test. Whatever goes wrong in it is a failure; nothing is raised."""
    begun = time.monotonic()
    coverage = CoverageRecorder(suite.compiled) if coverage is None else coverage
    try:
        failures = tuple(_run(suite, test, coverage))
    except Exception as error:  # noqa: BLE001 - a defect of ours in one test must not end the others
        failures = (_internal_failure(suite, test, error),)
    return TestResult(
        name=test.name,
        line=suite.span_of((*test.path, "name")).line,
        seconds=time.monotonic() - begun,
        failures=failures,
    )


def _run(suite: Suite, test: Test, coverage: CoverageRecorder) -> Iterable[Failure]:
    if test.trace is not None:
        return run_trace(suite, test, coverage)
    failure = run_steps(suite, test, coverage)
    return [] if failure is None else [failure]


def _internal_failure(suite: Suite, test: Test, error: Exception) -> Failure:
    span = suite.span_of((*test.path, "name"))
    found = f"a defect of policyguard: {type(error).__name__}: {error}"
    return Failure(
        span=span,
        lines=suite.lines(span),
        step="the test",
        mismatches=(Mismatch("internal", "a test that runs", found),),
    )


def _merge_coverage(known: dict[str, CoverageRecorder], found: CoverageRecorder) -> None:
    """Tests of one policy count together, in however many files they stand."""
    before = known.setdefault(found.file, found)
    if before is not found:
        before.merge(found)


def _build_coverage(reached: dict[str, CoverageRecorder]) -> tuple[Coverage, ...]:
    return tuple(one.build_coverage() for one in reached.values())
