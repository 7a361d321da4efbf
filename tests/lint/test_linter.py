"""Which files are linted, with which rules, and what is reported where."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from policyguard.cli import main
from policyguard.lint import NothingToLintError, UnknownCodeError, lint_paths
from policyguard.lint.catalog import ALIASES, expand_codes
from policyguard.lint.config import read_config

BASE = """policyguard: 1
name: base
classify: {classes: [{class: payment, tools: [pay]}, {class: look_up, tools: [get]}]}
lists: {shops: [a.example]}
"""
USES = """policyguard: 1
name: uses
extends: [base.yaml]
rules: {pay: {classes: [payment], effect: ask}}
"""


def _codes(*paths: Path, **settings) -> list[tuple[str, str, int]]:
    result = lint_paths(list(paths), **settings)
    return [(one.code, Path(one.span.file).name, one.span.line) for one in result.diagnostics]


@pytest.fixture(name="folder")
def _folder(tmp_path: Path) -> Path:
    (tmp_path / "base.yaml").write_text(BASE)
    (tmp_path / "one.yaml").write_text(USES)
    return tmp_path


def test_an_included_file_is_linted_with_its_only_policy(folder):
    unused = [("lint/unused-class", "base.yaml", 3), ("lint/unused-definition", "base.yaml", 4)]
    assert _codes(folder) == unused
    # By itself it is a policy like any other.
    assert _codes(folder / "base.yaml") == [
        ("lint/refuses-nothing", "base.yaml", 2),
        ("lint/unused-class", "base.yaml", 3),
        ("lint/unused-class", "base.yaml", 3),
        ("lint/unused-definition", "base.yaml", 4),
    ]
    # Whoever extends it is not told what is wrong with it.
    assert _codes(folder / "one.yaml") == []


def test_a_comment_on_what_a_part_is_by_itself_is_not_called_unused(folder):
    ignore = "# policyguard: ignore-file[lint/refuses-nothing] a part of `one`\n"
    (folder / "base.yaml").write_text(ignore + BASE)
    (folder / "one.yaml").write_text(USES.replace("[payment]", "[payment, look_up]"))
    assert _codes(folder) == [("lint/unused-definition", "base.yaml", 5)]


def test_what_one_policy_does_not_use_the_other_may(folder):
    (folder / "two.yaml").write_text(USES.replace("payment", "look_up").replace("uses", "two"))
    assert _codes(folder) == []


def test_an_included_file_is_also_linted_alone(folder):
    (folder / "base.yaml").write_text(BASE + "limits: {tools: {get: {polling: {cooldown: 1s}}}}\n")
    (folder / "two.yaml").write_text(USES.replace("payment", "look_up").replace("uses", "two"))
    assert _codes(folder) == [("lint/unbounded-polling", "base.yaml", 5)]


def test_a_pack_is_not_reported_to_who_extends_it(tmp_path):
    (tmp_path / "mine.yaml").write_text("policyguard: 1\nname: x\nextends: [narrowing]\n")
    assert _codes(tmp_path) == []


def test_an_override_is_reported_at_its_position(tmp_path):
    text = "policyguard: 1\nname: x\nextends: [core]\nsignatures:\n  - {id: any, pattern: '.'}\n"
    (tmp_path / "mine.yaml").write_text(text)
    found = _codes(tmp_path, select=["lint"])
    assert ("lint/matches-everything", "mine.yaml", 5) in found


def test_codes_are_selected_and_ignored(folder):
    every = _codes(folder)
    assert _codes(folder, select=["lint/unused-class"]) == every[:1]
    assert _codes(folder, select=["lint"]) == every
    assert _codes(folder, select=["cel"]) == []
    assert _codes(folder, ignore=["lint/unused-class"]) == every[1:]
    assert _codes(folder, select=["lint"], ignore=["lint"]) == []


def test_what_keeps_a_policy_from_loading_is_reported_all_the_same(folder):
    (folder / "one.yaml").write_text(USES + "budget: {}\n")
    assert ("schema/unknown-key", "one.yaml", 5) in _codes(folder, select=["lint"])
    assert ("schema/unknown-key", "one.yaml", 5) in _codes(folder, ignore=["schema"])


def test_an_unknown_code_is_refused(folder):
    with pytest.raises(UnknownCodeError, match="did you mean `lint/unused-class`"):
        lint_paths([folder], select=["lint/unused-clas"])
    with pytest.raises(UnknownCodeError):
        lint_paths([folder], ignore=["nonsense"])


def test_nothing_to_lint_is_an_error(tmp_path, monkeypatch):
    with pytest.raises(NothingToLintError, match="no policy in"):
        lint_paths([tmp_path])
    with pytest.raises(NothingToLintError, match="no such file"):
        lint_paths([tmp_path / "x.yaml"])
    monkeypatch.chdir(tmp_path)
    with pytest.raises(NothingToLintError, match="name a file"):
        lint_paths([])


def test_two_names_of_one_file_are_reported_once(folder, monkeypatch):
    monkeypatch.chdir(folder)
    (folder / "inner").mkdir()
    once = _codes(Path("base.yaml"))
    assert _codes(Path("base.yaml"), Path("inner/../base.yaml")) == once


def test_where_classes_are_keys_all_of_them_are_used(folder):
    (folder / "one.yaml").write_text(
        USES + "budgets: {each: {calls: 9, per: [turn, call.class]}}\n"
    )
    assert _codes(folder) == [("lint/unused-definition", "base.yaml", 4)]


@pytest.mark.parametrize("code", ["lint/packs-at-odds", "lint/packs-*", "lint/conflicting-packs"])
def test_a_former_code_selects_and_ignores(tmp_path, code):
    (tmp_path / "x.yaml").write_text("policyguard: 1\nname: x\nextends: [core, sentinel]\n")
    found = [("lint/conflicting-packs", "x.yaml", 3)]
    assert _codes(tmp_path, select=[code]) == found
    assert _codes(tmp_path) == found
    assert _codes(tmp_path, ignore=[code]) == []


@pytest.mark.parametrize("code", ALIASES)
def test_each_former_code_has_a_current_one(tmp_path, code):
    (tmp_path / "pyproject.toml").write_text(f"[tool.policyguard.lint]\nignore = ['{code}']\n")
    assert read_config(tmp_path / "pyproject.toml").ignore == (code,)
    assert expand_codes([code]) == {ALIASES[code]}
    shown = CliRunner().invoke(main, ["explain", code])
    assert shown.stdout.startswith(f"{ALIASES[code]}\n\n")


def test_a_comment_may_name_a_former_code(tmp_path):
    ignore = "# policyguard: ignore[lint/packs-at-odds] the last one wins"
    text = f"policyguard: 1\nname: x\n{ignore}\nextends: [core, sentinel]\n"
    (tmp_path / "x.yaml").write_text(text)
    assert _codes(tmp_path) == []
    (tmp_path / "x.yaml").write_text(text.replace(", sentinel", ""))
    assert _codes(tmp_path) == [("lint/unused-ignore", "x.yaml", 3)]
