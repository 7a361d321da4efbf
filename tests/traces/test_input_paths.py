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


def test_a_folder_gives_all_files_under_it_sorted_and_none_that_is_hidden(tree: Path) -> None:
    assert names(tree, tree) == ["a.json", "b.jsonl", "in/z.traj", "in/deeper/c.jsonl"]


def test_a_session_comes_before_its_sub_agents(tree: Path) -> None:
    for name in ("s/0dd5/subagents/agent-1.jsonl", "s/0dd5.jsonl"):
        (tree / name).parent.mkdir(parents=True, exist_ok=True)
        (tree / name).write_text("{}")
    assert names(tree, tree / "s") == ["s/0dd5.jsonl", "s/0dd5/subagents/agent-1.jsonl"]


def test_what_is_hidden_can_be_named(tree: Path) -> None:
    assert names(tree, tree / ".hidden", tree / ".git") == [".hidden", ".git/config"]


def test_a_glob_gives_its_matches_sorted(tree: Path) -> None:
    assert names(tree, tree / "*.json*") == ["a.json", "b.jsonl"]
    assert names(tree, str(tree / "**" / "*.jsonl")) == ["b.jsonl", "in/deeper/c.jsonl"]
    assert names(tree, tree / "i*") == ["in/z.traj", "in/deeper/c.jsonl"]


def test_a_file_named_with_brackets_is_a_file_and_no_glob(tree: Path) -> None:
    (tree / "run[1].json").write_text("{}")
    assert names(tree, tree / "run[1].json") == ["run[1].json"]


def test_a_file_met_twice_is_given_once_where_it_was_named_first(tree: Path) -> None:
    again = tree / "in" / ".." / "b.jsonl"
    assert names(tree, tree / "b.jsonl", tree, again) == [
        "b.jsonl",
        "a.json",
        "in/z.traj",
        "in/deeper/c.jsonl",
    ]


@pytest.mark.parametrize("name", ["nothing.jsonl", "*.csv", "a.json/inside"])
def test_what_matches_nothing_is_an_error_that_names_it(tree: Path, name: str) -> None:
    with pytest.raises(TraceError) as error:
        list(expand([tree / name]))
    assert f"`{tree / name}`" in str(error.value)


def test_a_link_to_nothing_is_left_for_the_reader_to_name(tree: Path) -> None:
    (tree / "in" / "gone").symlink_to(tree / "nowhere")
    assert names(tree, tree / "in") == ["in/gone", "in/z.traj", "in/deeper/c.jsonl"]
    assert names(tree, tree / "in" / "gone") == ["in/gone"]


def test_a_loop_of_folders_ends(tree: Path) -> None:
    (tree / "in" / "again").symlink_to(tree, target_is_directory=True)
    assert len(names(tree, tree)) == 4


@pytest.mark.skipif(os.geteuid() == 0, reason="root may open every folder")
def test_a_locked_folder_is_left_for_the_reader_to_name(tree: Path) -> None:
    (tree / "in").chmod(0)
    try:
        assert names(tree, tree) == ["a.json", "b.jsonl", "in"]
    finally:
        (tree / "in").chmod(0o755)
