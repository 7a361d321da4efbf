"""Files, folders and globs."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from policyguard.traces import TraceError, expand


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    for name in ("b.jsonl", "a.json", "in/z.traj", "in/deeper/c.jsonl", ".hidden", ".git/config"):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("{}")
    return tmp_path


def names(tree: Path, *paths: str | Path) -> list[str]:
    return [str(path.relative_to(tree)) for path in expand(paths)]


def test_folder_expands_to_sorted_visible_files(tree: Path) -> None:
    assert names(tree, tree) == ["a.json", "b.jsonl", "in/z.traj", "in/deeper/c.jsonl"]


def test_a_session_comes_before_its_sub_agents(tree: Path) -> None:
    for name in ("s/0dd5/subagents/agent-1.jsonl", "s/0dd5.jsonl"):
        (tree / name).parent.mkdir(parents=True, exist_ok=True)
        (tree / name).write_text("{}")
    assert names(tree, tree / "s") == ["s/0dd5.jsonl", "s/0dd5/subagents/agent-1.jsonl"]


def test_hidden_files_can_be_named(tree: Path) -> None:
    assert names(tree, tree / ".hidden", tree / ".git") == [".hidden", ".git/config"]


def test_glob_expands_to_sorted_matches(tree: Path) -> None:
    assert names(tree, tree / "*.json*") == ["a.json", "b.jsonl"]
    assert names(tree, str(tree / "**" / "*.jsonl")) == ["b.jsonl", "in/deeper/c.jsonl"]
    assert names(tree, tree / "i*") == ["in/z.traj", "in/deeper/c.jsonl"]


def test_existing_file_with_brackets_is_not_a_glob(tree: Path) -> None:
    (tree / "run[1].json").write_text("{}")
    assert names(tree, tree / "run[1].json") == ["run[1].json"]


def test_repeated_files_appear_once(tree: Path) -> None:
    again = tree / "in" / ".." / "b.jsonl"
    assert names(tree, tree / "b.jsonl", tree, again) == [
        "b.jsonl",
        "a.json",
        "in/z.traj",
        "in/deeper/c.jsonl",
    ]


@pytest.mark.parametrize("name", ["nothing.jsonl", "*.csv", "a.json/inside"])
def test_no_match_is_an_error(tree: Path, name: str) -> None:
    with pytest.raises(TraceError) as error:
        list(expand([tree / name]))
    assert f"`{tree / name}`" in str(error.value)


def test_broken_link_is_left_to_the_reader(tree: Path) -> None:
    (tree / "in" / "gone").symlink_to(tree / "nowhere")
    assert names(tree, tree / "in") == ["in/gone", "in/z.traj", "in/deeper/c.jsonl"]
    assert names(tree, tree / "in" / "gone") == ["in/gone"]


def test_folder_loop_ends(tree: Path) -> None:
    (tree / "in" / "again").symlink_to(tree, target_is_directory=True)
    assert len(names(tree, tree)) == 4


@pytest.mark.skipif(os.geteuid() == 0, reason="root may open every folder")
def test_locked_folder_is_left_to_the_reader(tree: Path) -> None:
    (tree / "in").chmod(0)
    try:
        assert names(tree, tree) == ["a.json", "b.jsonl", "in"]
    finally:
        (tree / "in").chmod(0o755)
