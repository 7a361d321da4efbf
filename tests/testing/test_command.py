"""`policyguard test`, as a person and as CI would run it."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from policyguard.cli import main
from tests.testing.suites import ROOT, write

GOOD = "policy: core\ntests:\n  - name: it reads\n    steps: [{call: {read: {}}}]\n"
BAD = """\
policy: core
tests:
  - name: it reads
    steps:
      - {call: {read: {}}, expect: block}
"""
BROKEN = "policy: core\ntests:\n  - name: it reads\n    stepps: []\n"


def _run(*args: str | Path) -> Result:
    return CliRunner().invoke(main, ["test", *map(str, args)], catch_exceptions=False)


def _write(file: Path, text: str) -> Path:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
    return file


def test_passed_is_0(tmp_path: Path) -> None:
    result = _run(_write(tmp_path / "x.tests.yaml", GOOD))
    assert result.exit_code == 0
    assert "x.tests.yaml (core): 1 test\n" in result.stdout
    assert "1 passed in" in result.stdout


def test_a_failure_is_1_and_shows_what_was_expected(tmp_path: Path) -> None:
    file = _write(tmp_path / "x.tests.yaml", BAD)
    result = _run(file)
    assert result.exit_code == 1
    report = "\n".join(result.stdout.splitlines()[:8])
    assert report == (
        f"FAILED {file}: it reads\n"
        f" --> {file}:5:36\n"
        "  |\n"
        "5 |       - {call: {read: {}}, expect: block}\n"
        "  |                                    ^^^^^\n"
        "  = step:     1 of 1: read {}\n"
        "  = expected: block\n"
        "  = found:    allow"
    )
    assert "0 passed, 1 failed in" in result.stdout


def test_a_broken_file_is_2_and_does_not_stop_the_others(tmp_path: Path) -> None:
    _write(tmp_path / "a.tests.yaml", BROKEN)
    _write(tmp_path / "b.tests.yaml", BAD)
    result = _run(tmp_path)
    assert result.exit_code == 2
    assert "did you mean `steps`?" in result.stdout
    assert "FAILED" in result.stdout
    assert "0 passed, 1 failed, 1 file could not be run" in result.stdout


def test_nothing_to_test_is_2(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for args in ((), (".",), ("none.yaml",)):
        result = _run(*args)
        assert (result.exit_code, result.stdout) == (2, "")
        assert result.stderr.startswith("policyguard test: no ")


def test_misuse_is_2(tmp_path: Path) -> None:
    assert _run("--format", "html", tmp_path).exit_code == 2


def test_where_tests_are_looked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    _write(tmp_path / "here" / "x.tests.yaml", BAD)
    assert _run().exit_code == 1
    _write(tmp_path / "policies" / "shop" / "tests.yaml", GOOD)
    assert _run().exit_code == 0
    # Other programs have a tests.yaml too; the longer name is ours, whatever stands in it.
    _write(tmp_path / "policies" / "tests.yaml", "tests: []\n")
    _write(tmp_path / "policies" / ".hidden" / "x.tests.yaml", BAD)
    _write(tmp_path / "policies" / "node_modules" / "x.tests.yaml", BAD)
    _write(tmp_path / "policies" / "env" / "pyvenv.cfg", "")
    _write(tmp_path / "policies" / "env" / "lib" / "x.tests.yaml", BAD)
    assert _run().exit_code == 0
    _write(tmp_path / "policies" / "y.tests.yaml", "test: []\n")
    assert _run().exit_code == 2
    # A file that is named is one by any name, and once.
    other = _write(tmp_path / "stories.yaml", GOOD)
    assert "1 passed" in _run(other, other).stdout


def test_json(tmp_path: Path) -> None:
    _write(tmp_path / "a.tests.yaml", BROKEN)
    _write(tmp_path / "b.tests.yaml", BAD)
    _write(tmp_path / "c.tests.yaml", GOOD)
    result = _run(tmp_path, "--format", "json", "--coverage")
    assert result.exit_code == 2
    document = json.loads(result.stdout)
    assert {key: document[key] for key in ("passed", "failed", "broken")} == {
        "passed": 1,
        "failed": 1,
        "broken": 1,
    }
    broken, bad, good = document["files"]
    assert broken["errors"][0]["code"] == "schema/missing-key"
    (failed,) = bad["tests"]
    (failure,) = failed["failures"]
    assert failed["passed"] is False
    assert (failure["line"], failure["step"]) == (5, "1 of 1: read {}")
    assert failure["mismatches"] == [{"what": "effect", "expected": "block", "found": "allow"}]
    assert failure["decision"]["effect"] == "allow"
    assert failure["state"]["calls"] == 1
    assert [test["passed"] for test in good["tests"]] == [True]
    (coverage,) = document["coverage"]
    assert coverage["policy"] == "core"
    assert coverage["reached"] == 0
    assert {"id", "file", "line", "hits"} == set(coverage["entries"][0])


def test_an_unexpected_refusal_is_reported_in_json(tmp_path: Path) -> None:
    steps = [{"call": {"bash": {"cmd": "rm"}}, "expect": "allow"}]
    result = _run(write(tmp_path, [{"name": "x", "steps": steps}]), "--format", "json")
    (failure,) = json.loads(result.stdout)["files"][0]["tests"][0]["failures"]
    assert failure["decision"]["effect"] == "block"
    assert failure["decision"]["violations"][0]["id"] == "rules/shell"


def test_junit(tmp_path: Path) -> None:
    _write(tmp_path / "a.tests.yaml", BROKEN)
    _write(tmp_path / "b.tests.yaml", BAD)
    _write(tmp_path / "c.tests.yaml", GOOD)
    root = ET.fromstring(_run(tmp_path, "--format", "junit").stdout)  # noqa: S314 - our own
    assert root.tag == "testsuites"
    assert (root.get("tests"), root.get("failures"), root.get("errors")) == ("3", "1", "1")
    broken, bad, good = root
    assert [suite.get("name") for suite in root] == [
        str(tmp_path / name) for name in ("a.tests.yaml", "b.tests.yaml", "c.tests.yaml")
    ]
    assert [suite.get("errors") for suite in root] == ["1", "0", "0"]
    assert [suite.get("failures") for suite in root] == ["0", "1", "0"]
    assert [child.tag for case in broken for child in case] == ["error"]
    ((failure,),) = bad
    assert failure.get("message") == "expected block, found allow"
    assert "= expected: block" in (failure.text or "")
    assert [(case.get("name"), len(case)) for case in good] == [("it reads", 0)]


def test_coverage_in_junit_is_the_output_of_a_suite_without_tests(tmp_path: Path) -> None:
    policy = {"rules": {"a": {"tools": ["x"]}, "b": {"tools": ["y"]}}}
    steps = [{"call": {"x": {}}, "expect": "block"}]
    file = write(tmp_path, [{"name": "t", "steps": steps}], policy)
    xml = _run(file, "--coverage", "--format", "junit").stdout
    _, suite = ET.fromstring(xml)  # noqa: S314 - our own
    assert suite.get("tests") == "0"
    text = suite.findtext("system-out") or ""
    assert "1 of 2 entries reached" in text
    assert "rules/b" in text
    assert text in _run(file, "--coverage").stdout


def test_untrusted_text_forges_nothing(tmp_path: Path) -> None:
    evil = "a\x1b[31m\nb]]>&<"
    step = {"call": {"x": {"a": evil}}, "expect": "block", "says": evil}
    file = write(tmp_path, [{"name": evil, "steps": [step]}])
    text = _run(file).stdout
    assert "\x1b" not in text
    root = ET.fromstring(_run(file, "--format", "junit").stdout)  # noqa: S314 - our own
    assert len(root) == 1
    assert json.loads(_run(file, "--format", "json").stdout)["files"][0]["tests"][0]["name"] == evil


def test_coverage_in_the_text(tmp_path: Path) -> None:
    policy = {"budgets": {"a": {"calls": 0, "tools": ["a"]}, "b": {"calls": 0, "tools": ["b"]}}}
    step = {"call": {"a": {}}, "expect": "block"}
    file = write(tmp_path, [{"name": "x", "steps": [step]}], policy)
    text = _run(file, "--coverage").stdout
    assert (
        f"coverage of x ({file}): 1 of 2 entries reached\n  no test reached:\n    budgets/b" in text
    )
    assert "coverage of" not in _run(file).stdout


def test_a_trace_with_many_failures_is_cut_in_the_text(tmp_path: Path) -> None:
    lines = [
        json.dumps({"event": "admitted", "session": "a", "call": f"c{n}", "tool": "t", "args": {}})
        for n in range(9)
    ]
    (tmp_path / "run.jsonl").write_text("\n".join(lines))
    policy = {"budgets": {"none": {"calls": 0}}}
    text = _run(write(tmp_path, [{"name": "x", "trace": "run.jsonl"}], policy)).stdout
    assert text.count("= found:") == 5
    assert "… and 4 more" in text


@pytest.mark.slow
def test_all_that_ships_passes() -> None:
    assert _run(ROOT / "policies").exit_code == 0


def test_tests_are_chosen_by_name(tmp_path: Path) -> None:
    more = "  - name: it writes\n    steps: [{call: {write: {}}, expect: block}]\n"
    both = _write(tmp_path / "both.tests.yaml", GOOD + more)
    _write(tmp_path / "other.tests.yaml", GOOD.replace("it reads", "it looks"))
    assert "2 passed, 1 failed" in _run(tmp_path).stdout
    chosen = _run(tmp_path, "-k", "reads")
    assert chosen.exit_code == 0
    assert chosen.stdout.startswith(f"{both} (core): 1 test\n\n1 passed in ")
    assert _run(tmp_path, "-k", "writes").exit_code == 1
    none = _run(tmp_path, "-k", "deletes")
    assert (none.exit_code, none.stdout) == (2, "")
    assert "no test has `deletes` in its name" in none.stderr


def test_failures_are_annotations_on_github(tmp_path: Path) -> None:
    file = _write(tmp_path / "a.tests.yaml", BAD)
    ran = _run(file, "--format", "github")
    assert ran.exit_code == 1
    (line,) = ran.stdout.splitlines()
    assert line.startswith(f"::error file={file},line=5,endLine=5,col=")
    assert ",title=it reads::" in line
    assert line.endswith("expected: block%0Afound: allow")
    assert _run(_write(file, GOOD), "--format", "github").stdout == ""
    broken = _run(_write(file, BROKEN), "--format", "github")
    assert broken.exit_code == 2
    assert "title=schema/unknown-key::unknown key `stepps`" in broken.stdout
