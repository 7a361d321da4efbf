"""Settings of `policyguard lint` in a file: found, read, refused with a place, overruled."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from hypothesis import given
from hypothesis import strategies as st

from policyguard.cli import main
from policyguard.engines.toml_source import find_span, parse
from policyguard.lint.config import Config, ConfigError, find_config, read_config

POLICY = """\
policyguard: 1
name: x
budgets: {b: {sum: outcome.score, max: 1}}
rules: {a: {tools: [x], when: call.args.n > 3}}
"""


@pytest.fixture(autouse=True)
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("mine").mkdir()
    Path("mine/a.yaml").write_text(POLICY)


def lint(*args: str) -> Result:
    return CliRunner().invoke(main, ["lint", *args], catch_exceptions=False)


def codes(result: Result) -> set[str]:
    return {
        line.split("[")[1].split("]")[0] for line in result.stdout.splitlines() if "]: " in line
    }


def test_without_a_file_there_are_no_settings() -> None:
    assert find_config(Path()) is None
    assert lint().exit_code == 2
    assert codes(lint("mine")) == {"cel/maybe-absent", "lint/rule-without-examples"}


@pytest.mark.parametrize(
    ("file", "table"),
    [(".policyguard.toml", "lint"), ("pyproject.toml", "tool.policyguard.lint")],
)
def test_paths_strictness_and_codes_come_from_the_file(file: str, table: str) -> None:
    Path(file).write_text(f'[{table}]\npaths = ["mine"]\nstrict = true\nignore = ["lint"]\n')
    result = lint()
    assert codes(result) == {"cel/maybe-absent"}
    assert result.exit_code == 1
    Path(file).write_text(f'[{table}]\npaths = ["mine"]\nselect = ["lint/rule-*"]\n')
    assert codes(lint()) == {"lint/rule-without-examples"}
    assert lint().exit_code == 0


def test_a_flag_wins_over_the_file() -> None:
    Path(".policyguard.toml").write_text(
        '[lint]\npaths = ["nowhere"]\nstrict = true\n'
        'select = ["cel"]\nignore = ["cel/maybe-absent"]\n'
    )
    assert lint("mine").stdout == ""
    assert codes(lint("mine", "--ignore", "lint")) == {"cel/maybe-absent"}
    assert codes(lint("mine", "--select", "lint")) == {"lint/rule-without-examples"}
    assert lint("mine", "--select", "lint").exit_code == 1
    assert lint("mine", "--select", "lint", "--no-strict").exit_code == 0


def test_codes_are_given_in_a_row_or_one_by_one() -> None:
    both = {"cel/maybe-absent", "lint/rule-without-examples"}
    assert codes(lint("mine", "--select", "cel/maybe-absent,lint/rule-without-examples")) == both
    assert codes(lint("mine", "--select", "cel", "--select", "lint")) == both
    assert codes(lint("mine", "--select", "lint/*", "--ignore", "lint/rule-*")) == set()


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        ("lint/rule-without-example", "lint/rule-without-examples"),
        ("lnt", "lint"),
        ("lint/zzz*", ""),
    ],
)
def test_a_code_that_no_finding_has_is_misuse(given: str, meant: str) -> None:
    for option in ("--select", "--ignore"):
        result = lint("mine", option, given)
        assert result.exit_code == 2
        assert f"unknown code `{given}`" in result.stderr
        assert (f"did you mean `{meant}`?" in result.stderr) is bool(meant)


WRONG = [
    ("[tool.policyguard]\nstrict = true\n", "config/unknown-key", 2, "strict"),
    ('[tool.policyguard.lint]\nslect = ["lint"]\n', "config/unknown-key", 2, "slect"),
    ('[tool.policyguard.lint]\nstrict = "yes"\n', "config/value", 2, "strict"),
    ('[tool.policyguard.lint]\npaths = "mine"\n', "config/value", 2, "paths"),
    ("[tool.policyguard.lint]\nselect = [1]\n", "config/value", 2, "select"),
    (
        '[tool.policyguard.lint]\nignore = [\n  "cel",\n  "lint/zz",\n]\n',
        "config/value",
        4,
        "lint/zz",
    ),
    ("[tool.x]\nslect = 1\n[tool.policyguard.lint]\nslect = 1\n", "config/unknown-key", 4, "slect"),
    ("[tool]\npolicyguard = 3\n", "config/value", 2, "policyguard"),
    ("[tool.policyguard]\nlint = 3\n", "config/value", 2, "lint"),
    ("[tool.policyguard.lint]\nstrict = tru\n", "config/syntax", 2, ""),
]


@pytest.mark.parametrize(("text", "code", "line", "shown"), WRONG, ids=[str(n) for n in range(10)])
def test_a_mistake_in_the_file_has_its_place(text: str, code: str, line: int, shown: str) -> None:
    Path("pyproject.toml").write_text(text)
    with pytest.raises(ConfigError) as raised:
        read_config(Path("pyproject.toml"))
    (wrong,) = raised.value.diagnostics
    assert (wrong.code, wrong.span.line) == (code, line)
    if shown:
        span = wrong.span
        assert wrong.lines[0][span.column - 1 : span.end_column - 1] == shown
    result = lint("mine")
    assert result.exit_code == 2
    assert f"--> pyproject.toml:{line}:" in result.stderr


def test_two_files_with_settings_are_refused() -> None:
    Path(".policyguard.toml").write_text("[lint]\nstrict = true\n")
    Path("pyproject.toml").write_text("[project]\nname = 'x'\n")
    assert find_config(Path()) == Path(".policyguard.toml")
    Path("pyproject.toml").write_text("[tool.policyguard.lint]\nstrict = false\n")
    result = lint("mine")
    assert result.exit_code == 2
    assert "config/conflict" in result.stderr


def test_the_file_is_looked_for_up_to_the_repository_and_no_further(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    Path("repository/.git").mkdir(parents=True)
    Path("repository/deep/deeper").mkdir(parents=True)
    settings = "[lint]\nstrict = true\n"
    Path(".policyguard.toml").write_text(settings)
    monkeypatch.chdir("repository/deep/deeper")
    assert find_config(Path()) is None
    Path("../../.policyguard.toml").write_text(settings)
    found = find_config(Path())
    assert found is not None
    assert found.resolve() == Path("../../.policyguard.toml").resolve()
    Path("../../.git").rmdir()
    assert find_config(Path()) is None


def test_paths_are_seen_from_the_file() -> None:
    Path("other").mkdir()
    Path("other/settings.toml").write_text('[lint]\npaths = ["../mine"]\n')
    assert read_config(Path("other/settings.toml")) == Config(paths=(Path("other/../mine"),))
    assert lint("--config", "other/settings.toml").exit_code == 0
    assert lint("--config", "other/nowhere.toml").exit_code == 2


@given(st.text(max_size=60))
def test_any_content_of_the_file_is_read_or_rejected(text: str) -> None:
    source, values, wrong = parse(text.encode("utf-8", "surrogatepass"), "x.toml")
    assert (values is None) is bool(wrong)
    span = find_span(source, "a", "b", "c")
    assert span.line >= 1
