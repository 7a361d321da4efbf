"""`fix`: what is certain is written, everything else in the file stays as it is."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec import structs

from policyguard.lint import fix, lint_paths
from policyguard.model.diagnostic import Edit, Span

IGNORED = (
    "policyguard: 1\n"
    "# policyguard: ignore[lint/bare-number] long gone\n"
    "name: fïx # policyguard: ignore[lint/bare-number, lint/hair-trigger] also\n"
    "limits: {default: {failures: {max: 3}}}\n"
)
MENDED = "policyguard: 1\nname: fïx\nlimits: {default: {failures: {max: 3}}}\n"


def _write(folder: Path, data: bytes) -> Path:
    file = folder / "policy.yaml"
    file.write_bytes(data)
    return file


def test_unused_comments_are_taken_out_and_it_is_linted_again(tmp_path):
    file = _write(tmp_path, IGNORED.encode())
    done = fix([file])
    assert file.read_text("utf-8") == MENDED
    assert (done.fixed, done.files, done.result.diagnostics) == (3, (file,), [])
    assert fix([file]).fixed == 0


@pytest.mark.parametrize("mark", [b"", b"\xef\xbb\xbf"])
def test_line_breaks_and_byte_order_marks_are_kept(tmp_path, mark):
    file = _write(tmp_path, mark + IGNORED.replace("\n", "\r\n").encode())
    fix([file])
    assert file.read_bytes() == mark + MENDED.replace("\n", "\r\n").encode()


def test_a_file_with_mixed_line_breaks_is_left_alone(tmp_path):
    data = IGNORED.replace("\n", "\r\n", 1).encode()
    file = _write(tmp_path, data)
    done = fix([file])
    assert (done.fixed, file.read_bytes()) == (0, data)
    assert len(done.result.diagnostics) == 3


def test_the_mode_of_a_file_and_a_link_to_it_are_kept(tmp_path):
    file = _write(tmp_path, IGNORED.encode())
    file.chmod(0o640)
    link = tmp_path / "link.yaml"
    link.symlink_to(file)
    assert fix([link]).files == (link,)
    assert link.is_symlink()
    assert file.read_text("utf-8") == MENDED
    assert file.stat().st_mode & 0o777 == 0o640
    assert sorted(tmp_path.iterdir()) == [link, file]


LOOSE = """\
policyguard: 1
name: loose
extends: core
locked: no
classify:
  targets: path, url                        # two, or one with a comma?
budgets:
  cost: {cost: "2", tools: '@mcp'}
  time: {calls: '3', within: "30"}          # of which unit?
rules:
  odd: {tools: [a, b], agents: "a,b"}
"""
TIGHT = (
    LOOSE.replace("extends: core", "extends: [core]")
    .replace("locked: no", "locked: false")
    .replace("\"2\", tools: '@mcp'", "2, tools: ['@mcp']")
    .replace("'3'", "3")
    .replace('"a,b"', '["a,b"]')
)


def test_values_of_another_kind_are_mended_where_it_is_certain_what_is_meant(tmp_path):
    file = _write(tmp_path, LOOSE.encode())
    done = fix([file])
    assert file.read_text("utf-8") == TIGHT
    assert done.fixed == 6


def test_only_what_is_selected_is_mended(tmp_path):
    file = _write(tmp_path, IGNORED.encode())
    assert fix([file], ignore=["lint/unused-ignore"]).fixed == 0
    assert file.read_text("utf-8") == IGNORED


def test_a_file_that_is_only_inherited_is_never_written(tmp_path):
    base = tmp_path / "base.yaml"
    base.write_text(IGNORED, "utf-8")
    top = tmp_path / "top.yaml"
    top.write_text("policyguard: 1\nname: top\nextends: [base.yaml]\n")
    assert fix([top]).fixed == 0
    assert base.read_text("utf-8") == IGNORED


def test_a_change_that_breaks_the_policy_is_taken_back(tmp_path, monkeypatch):
    file = _write(tmp_path, IGNORED.encode())

    def careless(paths, **settings):
        result = lint_paths(paths, **settings)
        edit = Edit(Span(str(file), 1, 1, 1, 12), "polisyguard")
        found = [structs.replace(one, edits=(edit,)) for one in result.diagnostics]
        return result._replace(diagnostics=found)

    # No rule proposes such a thing; the net is there for the one that will.
    monkeypatch.setattr("policyguard.lint.fixes.lint_paths", careless)
    assert fix([file]).fixed == 0
    assert file.read_text("utf-8") == IGNORED
