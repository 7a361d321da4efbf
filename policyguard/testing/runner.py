"""Tests files → results; each test has its own guard and clock."""

from __future__ import annotations

import time
from collections.abc import Iterable
from pathlib import Path

from policyguard.report.policy_tests.results import (
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


def run_files(
    files: Iterable[Path], *, coverage: bool = False, keep_going: bool = False, name: str = ""
) -> TestReport:
    """Run the tests of these files whose names contain `name`, by default all.

    A broken file does not stop the others. With `keep_going` a failing step does not end its test
    either.
    """
    started = time.monotonic()
    results: list[FileResult] = []
    recorders: dict[str, CoverageRecorder] = {}  # one a policy, over all files
    for file in files:
        read = read_suite(file)
        result, recorder = run_suite(str(file), read, keep_going=keep_going, name=name)
        if name and not (result.tests or result.errors):
            continue
        results.append(result)
        if recorder is not None and recorders.setdefault(recorder.file, recorder) is not recorder:
            recorders[recorder.file].merge(recorder)
    return TestReport(
        files=tuple(results),
        seconds=time.monotonic() - started,
        coverage=tuple(one.build_coverage() for one in recorders.values()) if coverage else None,
    )


def run_suite(
    file: str, read: ReadResult, *, keep_going: bool = False, name: str = ""
) -> tuple[FileResult, CoverageRecorder | None]:
    """Run a file's tests whose names contain `name`.

    Return the result, and the coverage if the suite is valid.
    """
    suite = read.suite
    if suite is None:
        return FileResult(file=file, errors=tuple(read.diagnostics)), None
    recorder = CoverageRecorder(suite.compiled)
    tests = tuple(
        run_test(suite, test, recorder, keep_going=keep_going)
        for test in suite.tests
        if name in test.name
    )
    return FileResult(file=file, policy=suite.compiled.policy.name, tests=tests), recorder


def run_test(
    suite: Suite, test: Test, coverage: CoverageRecorder | None = None, *, keep_going: bool = False
) -> TestResult:
    """Run one test. Any error in it is a failure; nothing is raised."""
    started = time.monotonic()
    coverage = CoverageRecorder(suite.compiled) if coverage is None else coverage
    try:
        failures = tuple(_run(suite, test, coverage, keep_going=keep_going))
    except Exception as error:  # noqa: BLE001 - an internal error in one test must not end the others
        failures = (_internal_failure(suite, test, error),)
    return TestResult(
        name=test.name,
        line=suite.span_of((*test.path, "name")).line,
        seconds=time.monotonic() - started,
        failures=failures,
    )


def _run(
    suite: Suite, test: Test, coverage: CoverageRecorder, *, keep_going: bool
) -> Iterable[Failure]:
    if test.trace is not None:
        return run_trace(suite, test, coverage)
    return run_steps(suite, test, coverage, keep_going=keep_going)


def _internal_failure(suite: Suite, test: Test, error: Exception) -> Failure:
    found = f"internal error: {type(error).__name__}: {error}"
    mismatch = Mismatch("internal", "a test that runs", found)
    return suite.failure((*test.path, "name"), "the test", mismatch)
