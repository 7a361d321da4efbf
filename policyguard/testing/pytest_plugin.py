"""A pytest plugin that collects `tests.yaml` and `*.tests.yaml`, one item per policy test.

Imports are deferred until there is such a file.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from policyguard.testing.discovery import has_tests_keys, has_tests_name

if TYPE_CHECKING:
    from policyguard.testing.suite import Suite, Test


def pytest_collect_file(file_path: Path, parent: pytest.Collector) -> pytest.Collector | None:
    """Collect files that are named like policy tests and have the keys `policy` and `tests`."""
    if has_tests_name(file_path.name) and has_tests_keys(file_path):
        return PolicyTestsFile.from_parent(parent, path=file_path)
    return None


class PolicyTestsFile(pytest.File):
    """A test file. If it or its policy is broken, collecting it raises the diagnostics."""

    def collect(self) -> Iterator[pytest.Item]:
        """Yield one item per test."""
        from policyguard.report.findings.diagnostics import render_text
        from policyguard.testing.suite_reader import read_suite

        suite, diagnostics = read_suite(_relative_path(self.path))
        if suite is None:
            raise self.CollectError(render_text(diagnostics))
        for test in suite.tests:
            yield PolicyTest.from_parent(self, name=test.name, suite=suite, test=test)


class PolicyTest(pytest.Item):
    """One policy test."""

    def __init__(self, *, suite: Suite, test: Test, **rest: Any) -> None:
        super().__init__(**rest)
        self._suite = suite
        self._test = test

    def runtest(self) -> None:
        """Run the test, and fail with the report of `policyguard test`."""
        from policyguard.report.policy_tests.rendering import render_failure
        from policyguard.testing.runner import run_test

        failures = run_test(self._suite, self._test).failures
        if failures:
            raise PolicyTestError("\n\n".join(map(render_failure, failures)))

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: Any = None) -> Any:
        """Show only the report: a traceback would show this file."""
        if isinstance(excinfo.value, PolicyTestError):
            return str(excinfo.value)
        return super().repr_failure(excinfo, style)

    def reportinfo(self) -> tuple[Path, int, str]:
        """Return the test's location; pytest counts lines from 0."""
        line = self._suite.span_of((*self._test.path, "name")).line
        return self.path, line - 1, self.name


class PolicyTestError(AssertionError):
    """A failed policy test; the message is the report."""


def _relative_path(path: Path) -> Path:
    """Shorten a path to be relative to the current folder."""
    folder = Path.cwd()
    return path.relative_to(folder) if path.is_relative_to(folder) else path
