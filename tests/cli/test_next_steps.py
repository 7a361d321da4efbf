"""The last line of a command at a terminal: what to do next."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from policyguard.cli import main
from tests.examples import slow_but
from tests.kept_policies import keep_compiled
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


@pytest.fixture(scope="module")
def compiled_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = _write(tmp_path_factory.mktemp("compiled"))
    keep_compiled(str(folder / "p.yaml"))
    return folder


@pytest.fixture
def compiled(compiled_folder: Path) -> Path:
    """A folder whose policy is compiled, without what `init` wrote."""
    (compiled_folder / "new.yaml").unlink(missing_ok=True)
    return compiled_folder


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return _write(tmp_path)


def _write(folder: Path) -> Path:
    (folder / "p.yaml").write_text(POLICY)
    (folder / "p.tests.yaml").write_text(TESTS)
    return folder


def _in(folder: Path, args: list[str]) -> list[str]:
    return [str(folder / arg) if arg.endswith(".yaml") else arg for arg in args]


@pytest.mark.parametrize(("args", "says"), STEPS)
def test_the_next_step_is_the_last_line_at_a_terminal(
    compiled: Path, args: list[str], says: str
) -> None:
    _, shown = run_at_terminal(*_in(compiled, args), columns=400)
    last = shown.rstrip().splitlines()[-1]
    assert last.startswith("next  ")
    assert says in last
    assert ("--keep-going" in last) is ("--keep-going" in says)


@pytest.mark.parametrize("args", slow_but([STEPS[0][0], STEPS[1][0]], [args for args, _ in STEPS]))
def test_pipes_and_parsed_formats_get_no_next_step(compiled: Path, args: list[str]) -> None:
    piped = CliRunner().invoke(main, _in(compiled, args), catch_exceptions=False)
    assert "next " not in piped.output
    if args[0] != "init":
        for form in ("json", "junit"):
            _, shown = run_at_terminal(*_in(compiled, args), "--format", form, columns=400)
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
