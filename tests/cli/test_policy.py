"""`policyguard policy show` and `policyguard policy diff`, as a reviewer would run them."""

from __future__ import annotations

import functools
import json
import re
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from policyguard.cli import main
from policyguard.compiler import compile_policy
from policyguard.compiler.compiled_policy import CompiledPolicy
from policyguard.engines.yaml_source import parse
from policyguard.engines.yaml_tree import descend, to_plain
from tests.examples import slow_but

POLICIES = Path(__file__).parents[2] / "policies"
PACKS = sorted(pack.name for pack in (POLICIES / "packs").iterdir() if pack.is_dir())
BASE = """\
policyguard: 1
name: base
params: {most: {default: 5, env: MOST}}
lists:
  hosts: [a.example, b.example]
limits:
  default: {repeat: {max: 3}}
signatures:
  - {id: teapot, pattern: teapot}
rules:
  no-push: {tools: [git_push], when: "true", message: do not push}
  no-mail: {tools: [send], when: "true"}
"""
TOP = """\
policyguard: 1
name: top
extends: [./base.yaml]
disable: {rules/no-mail: this agent mails}
lists:
  hosts: {add: [c.example]}
limits:
  default: {repeat: {max: 2, window: 20}}
signatures:
  - {id: teapot, pattern: 'tea ?pot'}
budgets:
  most: {calls: $most}
rules:
  no-push:
    tools: [git_push]
    when: |
      call.args.force
      || call.args.all
"""


def run(*args: str | Path, env: dict[str, str] | None = None) -> Result:
    return CliRunner().invoke(main, ["policy", *map(str, args)], catch_exceptions=False, env=env)


@pytest.fixture
def layers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("base.yaml").write_text(BASE)
    Path("top.yaml").write_text(TOP)


SHOWN = """\
policyguard: 1                                                # top.yaml:1
name: top                                                     # top.yaml:2
params:
  most: {default: 5, env: MOST}                               # base.yaml:3 (5 now, from MOST or \
the default)
lists:
  hosts:
    - a.example                                               # base.yaml:5
    - b.example                                               # base.yaml:5
    - c.example                                               # top.yaml:6
limits:
  default:
    repeat: {max: 2, window: 20}                              # top.yaml:8
signatures:
  - {id: teapot, pattern: "tea ?pot"}                         # top.yaml:10
rules:
  no-push:
    tools: [git_push]                                         # top.yaml:15
    when: |                                                   # top.yaml:16
      call.args.force
      || call.args.all
budgets:
  most: {calls: 5}                                            # top.yaml:12
"""


@pytest.mark.usefixtures("layers")
def test_each_value_is_shown_with_its_layer_and_line() -> None:
    shown = run("show", "top.yaml")
    assert shown.exit_code == 0
    assert shown.stdout == SHOWN


@pytest.mark.usefixtures("layers")
def test_what_does_not_hold_any_more_is_shown_on_demand() -> None:
    output = run("show", "top.yaml", "--overridden").stdout
    assert "# was {max: 3} in base.yaml:7" in output
    assert "# was {id: teapot, pattern: teapot} in base.yaml:9" in output
    assert '# was {tools: [git_push], when: "true", message: do not push} in base.yaml:11' in output
    assert "# was base in base.yaml:2" in output
    assert "# top.yaml:4 disables rules/no-mail: this agent mails" in output
    assert "# was [a.example" not in output
    without = [line for line in output.splitlines() if not line.lstrip().startswith("# ")]
    assert "\n".join(without) + "\n" == run("show", "top.yaml").stdout


@pytest.mark.usefixtures("layers")
def test_json_has_every_scalar_with_its_place() -> None:
    output = json.loads(run("show", "top.yaml", "--format", "json", "--overridden").stdout)
    settings = {tuple(one["path"]): one for one in output["settings"]}
    assert settings["limits", "default", "repeat", "window"] == {
        "path": ["limits", "default", "repeat", "window"],
        "value": 20,
        "file": "top.yaml",
        "line": 8,
    }
    assert settings["lists", "hosts", 2]["file"] == "top.yaml"
    assert settings["rules", "no-push", "when"]["value"] == "call.args.force\n|| call.args.all\n"
    before = {tuple(one["path"]): one for one in output["overridden"]}
    assert before["limits", "default", "repeat"]["value"] == {"max": 3}
    assert output["disabled"] == [
        {"id": "rules/no-mail", "reason": "this agent mails", "file": "top.yaml", "line": 4}
    ]
    assert "overridden" not in json.loads(run("show", "top.yaml", "--format", "json").stdout)


@pytest.mark.usefixtures("layers")
def test_sections_and_own_values_can_be_chosen() -> None:
    shown = run("show", "top.yaml", "--section", "limits", "--section", "budgets").stdout
    limits = "limits:\n  default:\n    repeat: {max: 2, window: 20}"
    assert shown.startswith(limits)
    assert [line for line in shown.splitlines() if line[0] != " "] == ["limits:", "budgets:"]
    Path("own.yaml").write_text(
        "policyguard: 1\nname: own\nextends: [core]\n"
        "limits: {default: {repeat: {max: 9}}}\n"
        "signatures:\n  - {id: teapot, pattern: teapot}\n"
    )
    shown = run("show", "own.yaml", "--own").stdout
    assert re.sub(r" +# own\.yaml:\d", "", shown) == (
        "policyguard: 1\nname: own\nsignatures: [{id: teapot, pattern: teapot}]\n"
        "limits:\n  default:\n    repeat: {max: 9}\n"
    )
    settings = json.loads(
        run("show", "own.yaml", "--own", "--section", "limits", "--format", "json").stdout
    )["settings"]
    assert [(one["path"], one["value"]) for one in settings] == [
        (["limits", "default", "repeat", "max"], 9)
    ]


@pytest.mark.usefixtures("layers")
def test_a_choice_that_shows_nothing_says_so() -> None:
    unknown = run("show", "top.yaml", "--section", "limit")
    assert (unknown.exit_code, unknown.stdout) == (2, "")
    assert "no section `limit`; did you mean `limits`?" in unknown.stderr
    assert "it has budgets, limits, lists," in run("show", "top.yaml", "--section", "xyz").stderr
    nothing = run("show", "core", "--own")
    assert nothing.exit_code == 0
    assert "your own files set nothing here; leave out --own" in nothing.stderr


@pytest.mark.usefixtures("layers")
def test_a_param_is_what_the_environment_makes_it() -> None:
    output = run("show", "top.yaml", env={"MOST": "7"}).stdout
    assert "(7 now, from MOST or the default)" in output
    assert "most: {calls: 7}" in output


@pytest.fixture
def packs_compiled_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Compile each pack once, for it takes half a second; files are compiled as they are."""

    def compile_(names: tuple[str, ...], *, cache: bool) -> CompiledPolicy:
        assert not cache
        return (
            _compile_packs(names)
            if {*names} <= {"core", *PACKS}
            else compile_policy(names, cache=False)
        )

    monkeypatch.setattr("policyguard.cli.policy.compile_policy", compile_)


@functools.cache
def _compile_packs(names: tuple[str, ...]) -> CompiledPolicy:
    return compile_policy(names, cache=False)


@functools.cache
def _pack_lines(file: str) -> list[str]:
    return (POLICIES / file.removeprefix("pack:")).read_text().splitlines()


@pytest.mark.usefixtures("packs_compiled_once")
@pytest.mark.parametrize("pack", slow_but(("core", "loop-brake"), ["core", *PACKS]))
def test_every_place_is_right_and_the_text_is_the_same_policy(
    pack: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    shown = run("show", pack)
    assert shown.exit_code == 0
    Path("shown.yaml").write_text(shown.stdout)
    for one in json.loads(run("diff", pack, "./shown.yaml", "--format", "json").stdout):
        # Only what the environment may change is otherwise: what it is now stands there.
        now, _, param = one["old"].partition(" now, from $")
        assert param
        assert now == one["new"]
    root = parse(shown.stdout, "shown.yaml").root
    assert root is not None
    for one in json.loads(run("show", pack, "--format", "json").stdout)["settings"]:
        node, rest = descend(root, tuple(one["path"]))
        assert not rest
        assert to_plain(node) == one["value"]
        line = _pack_lines(one["file"])[one["line"] - 1]
        if isinstance(one["value"], str) and one["value"].isalnum():
            assert one["value"] in line or "$" in line


def test_a_broken_policy_exits_with_2_and_the_reason(tmp_path: Path) -> None:
    (tmp_path / "bad.yaml").write_text("policyguard: 1\n")
    for args in (["show", tmp_path / "bad.yaml"], ["diff", "core", tmp_path / "bad.yaml"]):
        result = run(*args)
        assert (result.exit_code, result.stdout) == (2, "")
        assert "error[schema/missing-key]" in result.stderr
    assert run("show", "coer").exit_code == 2
    assert "did you mean `core`?" in run("show", "coer").stderr


@pytest.mark.usefixtures("layers")
def test_a_terminal_is_not_moved_by_what_is_shown() -> None:
    Path("x.yaml").write_text(
        'policyguard: 1\nname: "\\e]0;x\\a"\nextends: [base.yaml]\n'
        'rules: {a: {tools: [x], owner: "\\e[2J\\nx\\n", when: "true", message: "a\\u202eb"}}\n'
    )
    Path("y.yaml").write_text("policyguard: 1\nname: y\nextends: [base.yaml]\n")
    for args in (["show", "x.yaml"], ["diff", "y.yaml", "x.yaml"]):
        output = run(*args).stdout
        assert all(letter.isprintable() or letter == "\n" for letter in output)
    Path("z.yaml").write_text(run("show", "x.yaml").stdout)
    assert run("diff", "x.yaml", "z.yaml").exit_code == 0


@pytest.mark.usefixtures("layers")
def test_a_difference_has_its_place_and_direction_in_each_format() -> None:
    text = run("diff", "base.yaml", "top.yaml")
    assert text.exit_code == 1
    assert "~ limits/default/repeat\n    max: 3 → 2  (tighter, top.yaml:8)" in text.stdout
    assert (
        '- rules/no-mail\n    {tools: [send], when: "true"}  (looser, base.yaml:12)' in text.stdout
    )
    output = json.loads(run("diff", "base.yaml", "top.yaml", "--format", "json").stdout)
    (one,) = (one for one in output if one["field"] == "max")
    assert one == {
        "entry": "limits/default/repeat",
        "what": "changed",
        "field": "max",
        "old": "3",
        "new": "2",
        "direction": "tighter",
        "file": "top.yaml",
        "line": 8,
    }
    table = run("diff", "base.yaml", "top.yaml", "--format", "markdown").stdout
    row = "| <code>limits/default/repeat max</code> | <code>3</code> | <code>2</code> | tighter |"
    assert row in table
    assert re.search(r"<code>rules/no-push when</code>.* \| undetermined \|\n", table)
    assert run("diff", "top.yaml", "top.yaml", "--format", "json").stdout == "[]\n"


@pytest.mark.usefixtures("layers")
def test_long_values_are_blocks_to_read() -> None:
    head = "policyguard: 1\nname: x\nextends: [./base.yaml]\n"
    Path("short.yaml").write_text(head)
    Path("long.yaml").write_text(
        head + "rules:\n  no-push: {tools: [git_push], when: 'true', message: "
        "do not push to the remote of a colleague; ask the user to do it}\n"
        "  no-deletes:\n    tools: [bash, shell]\n    effect: ask\n    when: |\n"
        "      call.args.command.contains('rm -rf')\n      || call.args.all\n"
    )
    added = """\
+ rules/no-deletes  (tighter, long.yaml:6)
    tools: [bash, shell]
    effect: ask
    when: |
      call.args.command.contains('rm -rf')
      || call.args.all
"""
    changed = """\
~ rules/no-push
    message:  (undetermined, long.yaml:5)
      - do not push
      + do not push to the remote of a colleague; ask the user to do it
"""
    text = run("diff", "short.yaml", "long.yaml").stdout
    assert added in text
    assert changed in text
    backwards = run("diff", "long.yaml", "short.yaml").stdout
    assert added.replace("+ rules", "- rules").replace("tighter", "looser") in backwards
    assert "lines" not in run("diff", "short.yaml", "long.yaml", "--format", "json").stdout


LOOSER, TIGHTER = (["base.yaml", "looser.yaml"], ["looser.yaml", "base.yaml"])


@pytest.mark.usefixtures("layers")
@pytest.mark.parametrize(
    ("files", "options", "failed"),
    [
        (LOOSER, ["--fail-on", "looser"], ["looser: FAILED: 1 looser change"]),
        (LOOSER, ["--fail-on", "tighter"], []),
        (LOOSER, ["--fail-on", "tighter", "--fail-on", "any"], ["any: FAILED: 2 changes"]),
        (
            LOOSER,
            ["--fail-on", "looser, undetermined"],
            ["looser: FAILED: 1 looser change", "undetermined: FAILED: 1 undetermined change"],
        ),
        (TIGHTER, ["--fail-on", "looser"], []),
        (TIGHTER, ["--fail-on", "tighter"], ["tighter: FAILED: 1 tighter change"]),
        (["base.yaml", "base.yaml"], ["--fail-on", "any"], []),
    ],
)
def test_a_gate_fails_on_changes_of_a_kind(
    files: list[str], options: list[str], failed: list[str]
) -> None:
    text = BASE.replace("{max: 3}", "{max: 4}").replace("do not push", "never push")
    Path("looser.yaml").write_text(text)
    result = run("diff", *files, *options)
    assert result.exit_code == (1 if failed else 0)
    said = [f"policyguard policy diff: --fail-on {one}" for one in failed]
    assert result.stderr.splitlines() == said
    assert result.stdout == run("diff", *files).stdout


def test_a_gate_on_an_unknown_kind_is_misuse() -> None:
    result = run("diff", "core", "core", "--fail-on", "looser,weaker")
    assert result.exit_code == 2
    assert "'weaker' is not one of 'looser', 'tighter', 'undetermined', 'any'" in result.stderr
