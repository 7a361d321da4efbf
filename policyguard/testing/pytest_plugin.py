"""A pytest plugin: `tests.yaml` and `*.tests.yaml` are collected, each policy test an item.

Only what such files need is imported, and only once there is one.
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
    """Collect policy tests: files of their name that have the keys `policy` and `tests`."""
    if has_tests_name(file_path.name) and has_tests_keys(file_path):
        return PolicyTestsFile.from_parent(parent, path=file_path)
    return None


class PolicyTestsFile(pytest.File):
    """One tests file. Where it, or its policy, is broken, the collection says how."""

    def collect(self) -> Iterator[pytest.Item]:
        """One item a test."""
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
        """Run it, and fail with the report that `policyguard test` prints."""
        from policyguard.report.policy_tests.rendering import render_failure
        from policyguard.testing.runner import run_test

        failures = run_test(self._suite, self._test).failures
        if failures:
            raise PolicyTestError("\n\n".join(map(render_failure, failures)))

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: Any = None) -> Any:
        """The report alone: a traceback would show this file."""
        if isinstance(excinfo.value, PolicyTestError):
            return str(excinfo.value)
        return super().repr_failure(excinfo, style)

    def reportinfo(self) -> tuple[Path, int, str]:
        """Where it stands; pytest counts lines from 0."""
        line = self._suite.span_of((*self._test.path, "name")).line
        return self.path, line - 1, self.name


class PolicyTestError(AssertionError):
    """A policy test has failed; the message is the report."""


def _relative_path(path: Path) -> Path:
    """A path as short as a person would write it."""
    here = Path.cwd()
    return path.relative_to(here) if path.is_relative_to(here) else path
