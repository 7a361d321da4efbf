"""Pytest plugin of `benchmarks.mutants`: which tests cover a line, and running those only."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

DURATIONS, SELECTED = "MUTANTS_DURATIONS", "MUTANTS_SELECTED"
"""Files: seconds by test that passed, to write; ids of the tests to run, in their order."""
_seconds: dict[str, float] = {}
_unfit: set[str] = set()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """Attribute the lines to the test that runs them."""
    if DURATIONS in os.environ:
        import coverage

        running = coverage.Coverage.current()
        assert running is not None
        running.switch_context(item.nodeid)
    return (yield)


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Keep how long the test took."""
    _seconds[report.nodeid] = _seconds.get(report.nodeid, 0.0) + report.duration
    if not report.passed:
        _unfit.add(report.nodeid)


def pytest_sessionfinish() -> None:
    """Write the durations; a test that fails or is skipped cannot notice a mutant."""
    if path := os.environ.get(DURATIONS):
        fit = {test: seconds for test, seconds in _seconds.items() if test not in _unfit}
        Path(path).write_text(json.dumps(fit), "utf-8")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Keep the selected tests, in their order."""
    if path := os.environ.get(SELECTED):
        order = {test: at for at, test in enumerate(json.loads(Path(path).read_text("utf-8")))}
        items[:] = sorted(
            (item for item in items if item.nodeid in order), key=lambda item: order[item.nodeid]
        )
