"""Mutants of a module: what is changed, and what is left out."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from benchmarks.mutants import CannotRunError, list_folders
from benchmarks.mutations import find_mutants

SOURCE = '''"""Text with 1 < 2."""
LIMIT: int = 3


class Counter:
    def __repr__(self) -> str:
        return "a" + str(1)

    def add(self, n: int, *, often: bool = False) -> int:
        """Add 1."""
        if n < 0 and not often:
            raise ValueError(f"{n + 1} é")
        self.total += n
        self.note(n)
        return max(self.total, n)
'''


def test_each_mutant_changes_one_place_and_is_python(tmp_path: Path) -> None:
    file = tmp_path / "counter.py"
    file.write_text(SOURCE, "utf-8")
    found = find_mutants(tmp_path, file)
    added = [line for one in found for line in one.diff(SOURCE.encode()) if line[0] == "+"]
    assert sorted(line[1:].strip() for line in added) == sorted(
        [
            "LIMIT: int = 4",
            "def add(self, n: int, *, often: bool = True) -> int:",
            "if (n < 0 or not often):",
            "if (not often):",
            "if (n < 0):",
            "if (n <= 0) and not often:",
            "if n < 1 and not often:",
            "if n < 0 and (often):",
            "pass",
            "self.total -= n",
            "pass",
            "pass",
            "return None",
            "return min(self.total, n)",
        ]
    )
    assert {one.function for one in found} == {"", "Counter.add"}
    for one in found:
        ast.parse(one.apply(SOURCE.encode()))


def test_what_runs_at_import_affects_its_function_class_or_module(tmp_path: Path) -> None:
    file = tmp_path / "counter.py"
    file.write_text(SOURCE + "\n\nclass Settings:\n    a = 1\n    b = 2\n", "utf-8")
    affected = {one.replacement: one.affected_lines for one in find_mutants(tmp_path, file)}
    assert affected["4"] == (1, 20)
    assert affected["True"] == (9, 15)
    assert affected["2"] == affected["3"] == (18, 20)
    assert affected["self.total -= n"] == (13, 13)


def test_chosen_folders_alone_are_run() -> None:
    assert list_folders(["guard", "cel"]) == ["guard", "cel"]
    assert {"guard", "cel", "stories"} <= set(list_folders(None))
    assert "benchmarks" not in list_folders(None)
    assert list_folders(["benchmarks"]) == ["benchmarks"]
    with pytest.raises(CannotRunError, match="no tests in tests/cases; name a folder"):
        list_folders(["cel", "cases"])
