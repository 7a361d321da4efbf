"""What ships does what its own tests say."""

from __future__ import annotations

from pathlib import Path

import pytest

from policyguard.report.findings.diagnostics import render_text
from policyguard.report.policy_tests.rendering import render_failure
from policyguard.testing.discovery import find_tests
from policyguard.testing.runner import run_test
from policyguard.testing.suite_reader import read_suite
from tests.testing.suites import ROOT

FILES = find_tests([ROOT / "policies"])


def test_core_has_tests() -> None:
    assert ROOT / "policies" / "core" / "tests.yaml" in FILES


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.parent.name)
def test_the_pack_does_what_its_tests_say(file: Path) -> None:
    suite, diagnostics = read_suite(file)
    assert suite is not None, render_text(diagnostics)
    wrong = [
        f"{test.name}\n{render_failure(failure)}"
        for test in suite.tests
        for failure in run_test(suite, test).failures
    ]
    assert not wrong, "\n\n".join(wrong)
