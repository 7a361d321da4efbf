"""Errors in a test file or its policy are reported with their position."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from policyguard.report.findings.diagnostics import render_text
from policyguard.testing.suite_reader import read_suite
from tests.testing.suites import CASES, POLICY, write

STEPS = [{"turn": True}]


@pytest.mark.parametrize("name", ["awful", "calls_as_elsewhere", "meaning", "no_policy"])
def test_the_report_is_the_pinned_one(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """To update the pinned reports, run with `POLICYGUARD_PIN=1` and review the diff."""
    monkeypatch.chdir(CASES)
    suite, diagnostics = read_suite(f"{name}.yaml")
    assert suite is None
    report, pinned = render_text(diagnostics), Path(f"{name}.expected.txt")
    if os.environ.get("POLICYGUARD_PIN"):
        pinned.write_text(report, "utf-8")
    assert report == pinned.read_text("utf-8")


def only(file: Path) -> tuple[str, int, str]:
    """The only error."""
    suite, diagnostics = read_suite(file)
    assert suite is None
    (found,) = diagnostics
    return found.code, found.span.line, found.message


def test_an_empty_file_gets_help_on_how_tests_begin(tmp_path: Path) -> None:
    file = tmp_path / "tests.yaml"
    file.write_text("# none yet\n")
    (found,) = read_suite(file).diagnostics
    assert found.help is not None
    assert "`tests: …`" in found.help
    assert "policyguard: 1" not in found.help


TESTS = "tests: [{name: a, steps: [{turn: true}]}]\n"


@pytest.mark.parametrize(
    ("text", "code", "line", "message"),
    [
        ("", "yaml/empty", 1, "the file is empty"),
        ("- 1\n", "schema/type", 1, "expected a map, found a list"),
        ("policy: core\n", "schema/missing-key", 1, "a test file needs `tests`"),
        ("policy: core\ntests: []\n", "schema/empty", 2, "`tests` is empty"),
        ("a: 1\n---\nb: 2\n", "yaml/several-documents", 2, "a second document begins here"),
        (f"policy: [core]\n{TESTS}", "schema/type", 1, "expected text or a map, found a list"),
        (
            f"policy: core\npolicy: core\n{TESTS}",
            "yaml/duplicate-key",
            2,
            "duplicate key `policy`",
        ),
        (f"policy: cor\n{TESTS}", "load/not-found", 1, "no pack named `cor`"),
        (f"policy: {{lists: {{a: [.inf]}}}}\n{TESTS}", "yaml/number", 1, "`.inf` is not a finite"),
    ],
)
def test_the_first_mistake(tmp_path: Path, text: str, code: str, line: int, message: str) -> None:
    file = tmp_path / "x.tests.yaml"
    file.write_text(text)
    suite, (found, *_) = read_suite(file)
    assert suite is None
    assert (found.code, found.span.line) == (code, line)
    assert found.message.startswith(message)


def test_a_policy_in_place_of_its_tests_is_one_error(tmp_path: Path) -> None:
    file = tmp_path / "policy.yaml"
    file.write_text("policyguard: 1\nname: x\nbudgets: {a: {calls: 3}}\nrules: {}\n")
    assert only(file) == ("schema/unknown-key", 1, "this is a policy; pass its tests")


def test_an_unreadable_file_is_reported(tmp_path: Path) -> None:
    assert only(tmp_path / "none.yaml")[0] == "load/unreadable"
    assert only(tmp_path)[0] == "load/unreadable"


def test_a_budget_that_is_not_there(tmp_path: Path) -> None:
    file = write(tmp_path, [{"name": "a", "steps": [{"grant": ["mials", 1]}]}])
    assert only(file)[2] == "no budget `mials` in the policy"


def test_policy_errors_are_located_in_the_policy(tmp_path: Path) -> None:
    (tmp_path / "p.yaml").write_text("policyguard: 1\nname: p\nrulse: {}\n")
    suite, (found,) = read_suite(write(tmp_path, [{"name": "a", "steps": STEPS}], policy="p.yaml"))
    assert suite is None
    assert (found.code, Path(found.span.file).name, found.span.line) == (
        "schema/unknown-key",
        "p.yaml",
        3,
    )


def test_warnings_keep_nothing_from_running(tmp_path: Path) -> None:
    policy = {"budgets": {"b": {"sum": "outcome.score", "max": 1}}}
    suite, diagnostics = read_suite(write(tmp_path, [{"name": "a", "steps": STEPS}], policy=policy))
    assert suite is not None
    assert diagnostics == []
    assert suite.compiled.diagnostics


def test_an_inline_policy_may_extend_a_neighbouring_file(tmp_path: Path) -> None:
    (tmp_path / "base.yaml").write_text("policyguard: 1\nname: base\nbudgets: {b: {calls: 1}}\n")
    policy = {"extends": ["core", "./base.yaml"]}
    suite, _ = read_suite(write(tmp_path, [{"name": "a", "steps": STEPS}], policy=policy))
    assert suite is not None
    assert suite.compiled.policy.name == "x"
    assert "budgets/b" in suite.compiled.evaluator.budgets


@pytest.mark.parametrize("folder", ["tests", "other"])
def test_a_folder_called_tests_may_be_inside_the_policys_folder(
    tmp_path: Path, folder: str
) -> None:
    (tmp_path / "p.yaml").write_text("policyguard: 1\nname: p\n")
    (tmp_path / folder).mkdir()
    suite, _ = read_suite(
        write(tmp_path / folder, [{"name": "a", "steps": STEPS}], policy="p.yaml")
    )
    assert (suite is not None) == (folder == "tests")


def test_params_are_read_from_the_tests_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MOST", "7")
    policy = {**POLICY, "params": {"most": {"default": 1, "env": "MOST"}}}
    tests = [{"name": "a", "steps": STEPS}]
    for environ, wanted in (({}, 1), ({"MOST": "5"}, 5)):
        suite, _ = read_suite(write(tmp_path, tests, policy, environ=environ))
        assert suite is not None
        assert suite.compiled.policy.params["most"].value == wanted
