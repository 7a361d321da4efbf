"""`policyguard test --keep-going` reports every failing step."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from policyguard.cli import main

TESTS = """
policy: {budgets: {b: {calls: 1}}}
tests:
  - name: three wrong
    steps:
      - {call: {a: {}}, expect: block}
      - {call: {a: {}}}
      - {call: {a: {}}, expect: block}
      - {call: {a: {}}, says: nothing}
"""


@pytest.mark.parametrize(("options", "failures"), [([], 1), (["--keep-going"], 3)])
def test_failing_steps(tmp_path: Path, options: list[str], failures: int) -> None:
    file = tmp_path / "tests.yaml"
    file.write_text(TESTS)
    result = CliRunner().invoke(main, ["test", str(file), *options])
    assert result.exit_code == 1
    assert result.stdout.count("= step:") == failures
    assert "1 failed" in result.stdout
