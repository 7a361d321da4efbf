"""What an editor shows of a policy: completions, hovers and diagnostics out of the schema."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.editors.language_server import VERSION, LanguageServer

ROOT = Path(__file__).parents[2]
SCHEMA = ROOT / "schemas" / "policy.schema.json"
TEXT = """\
# yaml-language-server: $schema=policy.schema.json
policyguard: 1
name: x
mode: observ
budgts: {}
rules:
  no-push:
    tools: [git_push]
    when: "true"
    on_error: block
    effect: \

limits:
  default:
    repeat: {max: 3, sme: call}

"""

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def command(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """yaml-language-server, installed below pytest's cache, which git ignores."""
    npm = shutil.which("npm")
    if npm is None or shutil.which("node") is None:
        pytest.skip("npm and node are not installed")
    cache = request.config.cache
    folder = cache.mkdir("editors") if cache is not None else tmp_path_factory.mktemp("editors")
    found = Path(folder) / "node_modules" / ".bin" / "yaml-language-server"
    installed = found.parents[1] / "yaml-language-server" / "package.json"
    if not installed.exists() or json.loads(installed.read_text())["version"] != VERSION:
        wanted = f"yaml-language-server@{VERSION}"
        quiet = [
            "--no-audit",
            "--no-fund",
            "--ignore-scripts",
            "--no-save",
            "--prefix",
            str(folder),
        ]
        ran = subprocess.run([npm, "install", *quiet, wanted], capture_output=True, text=True)
        if ran.returncode:
            pytest.skip(f"npm cannot install {wanted}: {ran.stderr.strip()[-200:]}")
    return found


@pytest.fixture(scope="module")
def server(command: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LanguageServer]:
    started = LanguageServer(command, tmp_path_factory.mktemp("project"))
    yield started
    started.close()


@pytest.fixture
def policy(tmp_path: Path) -> Path:
    shutil.copy(SCHEMA, tmp_path)
    (tmp_path / "policy.yaml").write_text(TEXT)
    return tmp_path / "policy.yaml"


def place(text: str) -> tuple[int, int]:
    """The line and column of a text in the policy, both from 1."""
    before = TEXT[: TEXT.index(text)]
    return before.count("\n") + 1, len(before.rpartition("\n")[2]) + 1


def test_mistakes_are_underlined_where_they_stand(server: LanguageServer, policy: Path) -> None:
    told = {
        (one["range"]["start"]["line"] + 1, one["range"]["start"]["character"] + 1): one["message"]
        for one in server.open(policy)
    }
    assert told[place("budgts")] == "Property budgts is not allowed."
    assert '"observe"' in told[place("observ\n")]
    assert told[place("sme")] == "Property sme is not allowed."


def test_a_hover_tells_what_a_key_is(server: LanguageServer, policy: Path) -> None:
    server.open(policy)
    told = server.hover(policy, *place("on_error"))
    assert "The effect if the rule's CEL cannot be evaluated." in told
    assert "`advise`" in told
    assert "How many calls are allowed: 3 refuses the fourth" in server.hover(
        policy, *place("max: 3")
    )


def test_values_are_completed(server: LanguageServer, policy: Path) -> None:
    server.open(policy)
    line, column = place("effect: ")
    offered = server.completions(policy, line, column + len("effect: "))
    assert list(offered) == ["advise", "ask", "block", "halt"]


def test_every_key_is_completed_with_its_description(server: LanguageServer, policy: Path) -> None:
    server.open(policy)
    document: dict[str, Any] = json.loads(SCHEMA.read_text("utf-8"))
    last = TEXT.count("\n")
    offered = server.completions(policy, last + 1, 1)
    there = {"policyguard", "name", "mode", "rules", "limits"}
    assert offered.keys() == document["properties"].keys() - there
    for key, said in offered.items():
        assert said == document["properties"][key]["description"], key
    line, column = place("    effect:")
    inside = server.completions(policy, line, column + 4)
    assert inside["owner"] == "The owner of this entry."


@pytest.mark.parametrize(
    "file",
    [
        *sorted(
            file.relative_to(ROOT).as_posix()
            for file in (ROOT / "policies").rglob("*.yaml")
            if file.name != "tests.yaml"
        ),
        "docs/demo/policy.yaml",
    ],
)
def test_nothing_is_underlined_in_what_ships(server: LanguageServer, file: str) -> None:
    assert (ROOT / file).read_text().startswith("# yaml-language-server: $schema=")
    assert server.open(ROOT / file) == []
