"""The last line of a command at a terminal: what to do next."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from policyguard.cli import main
from tests.examples import slow_but
from tests.terminal import run_at_terminal

RULE = "rules: {no-b: {tools: [read], when: 'true', message: no}}"
POLICY = f"policyguard: 1\nname: p\n{RULE}\n"
TESTS = """\
policy: p.yaml
tests:
  - name: reads
    steps:
      - {call: {read: {path: a}}, expect: allow}
"""
STEPS = [
    (["lint", "p.yaml"], "`policyguard explain lint/rule-without-examples` explains"),
    (["test", "p.tests.yaml"], "correct the policy or the expected effect; --keep-going shows"),
    (["test", "p.tests.yaml", "--keep-going"], "correct the policy or the expected effect"),
    (["init", "loop-brake", "-o", "new.yaml"], "`policyguard simulate RUNS` shows"),
]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "p.yaml").write_text(POLICY)
    (tmp_path / "p.tests.yaml").write_text(TESTS)
    return tmp_path


def _in(folder: Path, args: list[str]) -> list[str]:
    return [str(folder / arg) if arg.endswith(".yaml") else arg for arg in args]


@pytest.mark.parametrize(("args", "says"), STEPS)
def test_the_next_step_is_the_last_line_at_a_terminal(
    folder: Path, args: list[str], says: str
) -> None:
    _, shown = run_at_terminal(*_in(folder, args), columns=400)
    last = shown.rstrip().splitlines()[-1]
    assert last.startswith("next  ")
    assert says in last
    assert ("--keep-going" in last) is ("--keep-going" in says)


@pytest.mark.parametrize("args", slow_but([STEPS[0][0], STEPS[1][0]], [args for args, _ in STEPS]))
def test_pipes_and_parsed_formats_get_no_next_step(folder: Path, args: list[str]) -> None:
    piped = CliRunner().invoke(main, _in(folder, args), catch_exceptions=False)
    assert "next " not in piped.output
    if args[0] != "init":
        for form in ("json", "junit"):
            _, shown = run_at_terminal(*_in(folder, args), "--format", form, columns=400)
            assert "\nnext " not in shown


def test_lint_names_what_it_can_fix(folder: Path) -> None:
    comment = "# policyguard: ignore[lint/bare-number] no more\n"
    (folder / "p.yaml").write_text(f"{comment}{POLICY}")
    _, shown = run_at_terminal("lint", folder / "p.yaml", columns=400)
    assert "next  --fix fixes 1 of 3; `policyguard explain lint/" in shown


def test_a_clean_result_needs_no_next_step(folder: Path) -> None:
    (folder / "p.tests.yaml").write_text(TESTS.replace("allow", "block"))
    code, shown = run_at_terminal("test", folder / "p.tests.yaml")
    assert code == 0
    assert "next  " not in shown
