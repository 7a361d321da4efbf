"""`policyguard init` and `policyguard schema`."""

from __future__ import annotations

import json
from pathlib import Path

import jsonschema
import pytest
from click.testing import CliRunner, Result

from policyguard.cli import main
from policyguard.cli.schema import SCHEMAS
from policyguard.compiler import check_policy
from policyguard.lint import lint_paths
from policyguard.report.findings.diagnostics import render_text
from tests.examples import slow_but

ROOT = Path(__file__).parents[2]
PACKS = [
    "core",
    *sorted(pack.name for pack in (ROOT / "policies/packs").iterdir() if pack.is_dir()),
]


def run(*args: str) -> Result:
    return CliRunner().invoke(main, [*args], catch_exceptions=False)


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_what_check_reads_and_prints_has_a_schema() -> None:
    described = json.loads(run("schema", "service").stdout)
    call = {"session": "s", "tool": "ls", "args": {}, "call": "c"}
    requests = {"check": call, "record": {"session": "s", "call": "c", "result": "a"}}
    for name, request in requests.items():
        done = CliRunner().invoke(
            main, [name, "--policy", "core", "--store", "s.db", "--alone"], json.dumps(request)
        )
        for kind, document in (("Request", request), ("Answer", json.loads(done.stdout))):
            reference = {"$ref": f"#/components/schemas/{name.capitalize()}{kind}"}
            jsonschema.Draft202012Validator({**described, **reference}).validate(document)


@pytest.mark.parametrize("pack", slow_but(("coding-agent",), PACKS))
def test_what_is_written_extends_the_pack_and_is_clean(pack: str) -> None:
    result = run("init", pack, "--output", "mine.yaml")
    assert result.exit_code == 0
    found = lint_paths([Path("mine.yaml")]).diagnostics
    assert render_text(found) == ""
    assert run("policy", "diff", pack, "mine.yaml").stdout == "no change in meaning\n"
    assert max(map(len, Path("mine.yaml").read_text().splitlines()[:30])) <= 100


@pytest.mark.parametrize("pack", slow_but(("core",), PACKS))
def test_every_section_in_the_comments_can_be_taken_in(pack: str) -> None:
    lines = run("init", pack, "--output", "-").stdout.splitlines()
    sections = [
        [line.removeprefix("# ") for line in rows]
        for rows in _paragraphs(lines)
        if rows[1:] and rows[1].endswith(":") and rows[0].startswith("# ")
    ]
    assert sections
    text = "\n".join(line for line in lines if not line.startswith("#"))
    for section in sections:
        Path("mine.yaml").write_text("\n".join([text, *section[1:], ""]))
        made, found = check_policy("mine.yaml")
        assert made is not None, render_text(found)
        for one in json.loads(run("policy", "diff", pack, "mine.yaml", "--format", "json").stdout):
            # What the environment may change in the pack is written as what it is now.
            now, _, param = one["old"].partition(" now, from $")
            assert param
            assert now == one["new"]


def _paragraphs(lines: list[str]) -> list[list[str]]:
    text = "\n".join(lines).partition("# The entries of")[2]
    return [part.splitlines() for part in text.split("\n\n")[1:]]


def test_the_examples_in_the_comments_can_be_taken_in() -> None:
    lines = run("init", "--output", "-").stdout.splitlines()
    start = lines.index("# budgets:")
    end = next(n for n, line in enumerate(lines) if n > start and not line)
    taken = [line.removeprefix("#").removeprefix(" ") for line in lines[start:end]]
    Path("mine.yaml").write_text("\n".join([*lines[:start], *taken, *lines[end:], ""]))
    assert render_text(lint_paths([Path("mine.yaml")]).diagnostics) == ""


def test_nothing_is_overwritten_without_force() -> None:
    assert run("init", "loop-brake").exit_code == 0
    Path("policyguard.yaml").write_text("mine")
    refused = run("init")
    assert refused.exit_code == 2
    assert "`policyguard.yaml` exists" in refused.stderr
    assert Path("policyguard.yaml").read_text() == "mine"
    Path("link.yaml").symlink_to("elsewhere.yaml")
    assert run("init", "--output", "link.yaml").exit_code == 2
    assert not Path("elsewhere.yaml").exists()
    assert run("init", "loop-brake", "--force").exit_code == 0
    assert Path("policyguard.yaml").read_text() != "mine"


def test_what_cannot_be_done_is_2() -> None:
    unknown = run("init", "coer")
    assert unknown.exit_code == 2
    assert "did you mean `core`?" in unknown.stderr
    nowhere = run("init", "--output", "nowhere/x.yaml")
    assert nowhere.exit_code == 2
    assert "no such file or directory" in nowhere.stderr
    folder = run("init", "--output", ".")
    assert folder.exit_code == 2
    assert "`.` is a folder; pass a file name" in folder.stderr
    assert list(Path().iterdir()) == []


def test_every_schema_is_printed_as_it_stands() -> None:
    files = {file.name for file in (ROOT / "schemas").glob("*.json")}
    assert set(SCHEMAS.values()) == files
    for name, file in SCHEMAS.items():
        shown = run("schema", name)
        assert shown.exit_code == 0
        assert shown.stdout == (ROOT / "schemas" / file).read_text("utf-8")
        jsonschema.Draft202012Validator.check_schema(json.loads(shown.stdout))
    assert run("schema").stdout == run("schema", "policy").stdout
    assert run("schema", "polisy").exit_code == 2
