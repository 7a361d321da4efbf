"""`policyguard lint`, as CI would run it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from policyguard.cli import main
from tests.examples import slow_but
from tests.terminal import run_at_terminal

REPLACING = "policyguard: 1\nname: x\nextends: [core]\nlimits:\n  default: {repeat: {max: 3}}\n"
GOOD = "policyguard: 1\nname: good\nbudgets: {calls: {calls: 5}}\n"
BAD = "policyguard: 1\nname: bad\nbudget: {calls: {calls: 5}}\n"


def _run(*args: str | Path) -> Result:
    return CliRunner().invoke(main, ["lint", *map(str, args)], catch_exceptions=False)


def test_a_clean_policy_is_0(tmp_path: Path) -> None:
    (tmp_path / "good.yaml").write_text(GOOD)
    result = _run(tmp_path / "good.yaml")
    assert (result.exit_code, result.stdout) == (0, "")
    assert "1 file checked: no issues found" in result.stderr


def test_an_error_is_1_and_has_a_caret(tmp_path: Path) -> None:
    (tmp_path / "bad.yaml").write_text(BAD)
    result = _run(tmp_path / "bad.yaml")
    assert result.exit_code == 1
    assert "error[schema/unknown-key]" in result.stdout
    assert "^^^^^^" in result.stdout
    assert "did you mean `budgets`?" in result.stdout


def test_json_is_a_list_on_stdout_alone(tmp_path: Path) -> None:
    (tmp_path / "bad.yaml").write_text(BAD)
    (one,) = json.loads(_run(tmp_path / "bad.yaml", "--format", "json").stdout)
    assert one.keys() >= {
        "code",
        "severity",
        "message",
        "file",
        "line",
        "column",
        "end_line",
        "end_column",
        "help",
    }
    assert (one["severity"], one["line"], one["column"]) == ("error", 3, 1)
    (tmp_path / "good.yaml").write_text(GOOD)
    assert json.loads(_run(tmp_path / "good.yaml", "--format", "json").stdout) == []


def test_a_folder_is_searched_for_policies(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "good.yaml").write_text(GOOD)
    (tmp_path / "a" / "bad.yml").write_text(BAD)
    (tmp_path / "other.yaml").write_text("x: 1\n")
    result = _run(tmp_path)
    assert result.exit_code == 1
    assert "2 files checked: 1 error, 0 warnings" in result.stderr


@pytest.mark.parametrize("name", ["missing.yaml", "empty"])
def test_nothing_to_lint_is_2(tmp_path: Path, name: str) -> None:
    (tmp_path / "empty").mkdir()
    result = _run(tmp_path / name)
    assert result.exit_code == 2
    assert name in result.stderr


def test_the_default_is_the_policy_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert _run().exit_code == 2
    (tmp_path / "policies").mkdir()
    (tmp_path / "policies" / "bad.yaml").write_text(BAD)
    assert _run().exit_code == 1
    (tmp_path / "policyguard.yaml").write_text(GOOD)
    assert _run().exit_code == 0


def test_warnings_count_with_strict(tmp_path: Path) -> None:
    file = tmp_path / "doubtful.yaml"
    file.write_text("policyguard: 1\nname: x\nbudgets: {b: {sum: outcome.score, max: 1}}\n")
    assert _run(file).exit_code == 0
    assert "warning[cel/" in _run(file).stdout
    assert _run(file, "--strict").exit_code == 1


@pytest.mark.parametrize("folder", slow_but(("docs",), ["docs", "policies"]))
def test_everything_that_ships_is_clean(folder: str) -> None:
    result = _run(Path(__file__).parents[2] / folder, "--strict")
    assert (result.exit_code, result.stdout) == (0, "")


def test_fix_makes_the_changes_that_are_certain(tmp_path: Path) -> None:
    file = tmp_path / "unused.yaml"
    comment = "# policyguard: ignore[lint/bare-number] no more\n"
    file.write_text(f"{comment}{GOOD}")
    assert "lint/unused-ignore" in _run(file, "--strict").stdout
    result = _run(file, "--strict", "--fix")
    assert (result.exit_code, result.stdout) == (0, "")
    assert f"fixed: 1, in {file}" in result.stderr
    assert file.read_text() == GOOD
    again = _run(file, "--fix", "--format", "json")
    assert (again.exit_code, json.loads(again.stdout)) == (0, [])
    assert "fixed: 0, in no file" in again.stderr


def test_standard_input_is_a_policy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("base.yaml").write_text(GOOD)
    text = "policyguard: 1\nname: x\nextends: [./base.yaml]\nbudget: {}\n"
    ran = CliRunner().invoke(main, ["lint", "-"], input=text)
    assert ran.exit_code == 1
    assert "error[schema/unknown-key]: unknown key `budget`\n --> -:4:1" in ran.stdout
    good = CliRunner().invoke(main, ["lint", "-"], input=text.replace("budget: {}\n", ""))
    assert (good.exit_code, good.stderr) == (0, "1 file checked: no issues found\n")
    fixed = CliRunner().invoke(main, ["lint", "-", "--fix"], input=text)
    assert (fixed.exit_code, fixed.stdout) == (2, "")


def test_a_pack_is_linted_by_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("loop-brake", "packs/loop-brake"):
        ran = CliRunner().invoke(main, ["lint", name])
        assert (ran.exit_code, ran.stderr) == (0, "1 file checked: no issues found\n")
    assert CliRunner().invoke(main, ["lint", "loop-break"]).exit_code == 2
    Path("loop-brake").write_text(GOOD.replace("good", "1"))
    assert CliRunner().invoke(main, ["lint", "loop-brake"]).exit_code == 1


def test_notes_are_counted_and_each_finding_can_be_one_line(tmp_path: Path) -> None:
    file = tmp_path / "p.yaml"
    file.write_text(REPLACING)
    ran = CliRunner().invoke(main, ["lint", str(file), "--format", "concise"])
    assert ran.stdout == (
        f"{file}:5:13: lint/replaced-limits this replaces 4 inherited `repeat` limits; "
        "what 4 of them count is not counted any more\n"
    )
    assert ran.stderr == "1 file checked: 0 errors, 0 warnings, 1 note\n"


def test_at_a_terminal_lines_are_broken_between_words(tmp_path: Path) -> None:
    file = tmp_path / "p.yaml"
    file.write_text(REPLACING)
    _, shown = run_at_terminal("lint", file, columns=60)
    piped = CliRunner().invoke(main, ["lint", str(file)]).stdout
    assert max(map(len, piped.splitlines())) > 60
    lines = [line for line in shown.splitlines() if "-->" not in line]
    assert max(map(len, lines)) <= 60
    assert "\n    " in shown
    assert piped.split() == shown.split()[: len(piped.split())]


def test_what_fix_cannot_mend_is_reported(tmp_path: Path) -> None:
    file = tmp_path / "bad.yaml"
    file.write_text(BAD)
    assert _run(file, "--fix").exit_code == 1
    assert file.read_text() == BAD
