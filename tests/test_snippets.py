"""Type checkers find nothing wrong with the Python of the documents: hosts write such code."""

from __future__ import annotations

import ast
import builtins
import json
import os
import re
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

import policyguard

ROOT = Path(__file__).parents[1]
DOCUMENTS = [
    file
    for file in (ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")))
    if "```python" in file.read_text()
]
TYPED = {"guard": "policyguard.Guard", "session": "policyguard.Session"}
"""Names that blocks have from those before them; all others of a host may be anything."""


def module_of(document: Path) -> str:
    """Return a module in which each block of a document is a function."""
    exported = ", ".join(policyguard.__all__)
    lines = ["from typing import Any", "import policyguard", f"from policyguard import {exported}"]
    free: dict[str, str] = {}
    functions = []
    for number, block in enumerate(re.findall(r"```python\n(.*?)```", document.read_text(), re.S)):
        tree = ast.parse(textwrap.dedent(block))
        names = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
        bound = {
            node.id
            for node in ast.walk(tree)
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
        }
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                bound.add(node.name)
            elif isinstance(node, ast.Import | ast.ImportFrom):
                bound |= {(alias.asname or alias.name).partition(".")[0] for alias in node.names}
            elif isinstance(node, ast.arg):
                bound.add(node.arg)
            elif isinstance(node, ast.ExceptHandler) and node.name:
                bound.add(node.name)
        known = {*bound, *dir(builtins), *policyguard.__all__}
        free |= {name: TYPED.get(name, "Any") for name in names if name not in known}
        functions.append(f"async def block_{number}() -> None:\n{textwrap.indent(block, '    ')}")
    lines += [f"{name}: {type_}" for name, type_ in sorted(free.items())]
    return "\n".join([*lines, "", "", *functions])


@pytest.fixture(scope="module")
def modules(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    folder = tmp_path_factory.mktemp("snippets")
    files = []
    for document in DOCUMENTS:
        name = re.sub(r"\W", "_", str(document.relative_to(ROOT).with_suffix("")))
        files.append(folder / f"snippets_{name}.py")
        files[-1].write_text(module_of(document))
    return files


def test_mypy_finds_nothing_in_the_documents(modules: list[Path]) -> None:
    pytest.importorskip("mypy")
    options = ["--strict", "--disable-error-code=empty-body", "--no-error-summary"]
    done = subprocess.run(
        [sys.executable, "-m", "mypy", *options, *map(str, modules)],
        cwd=ROOT,
        env={**os.environ, "MYPYPATH": str(ROOT)},
        capture_output=True,
        text=True,
    )
    assert done.stdout + done.stderr == ""


def test_pyright_finds_nothing_in_the_documents(modules: list[Path]) -> None:
    pyright = shutil.which("pyright") or shutil.which("basedpyright")
    if pyright is None:
        pytest.skip("pyright is not installed")
    folder = modules[0].parent
    settings = {
        "typeCheckingMode": "standard",
        "extraPaths": [str(ROOT)],
        "pythonVersion": "3.11",
        "reportReturnType": False,  # of functions whose bodies are left out
    }
    (folder / "pyrightconfig.json").write_text(json.dumps(settings))
    done = subprocess.run(
        [pyright, "--outputjson", "--pythonpath", sys.executable, "--project", str(folder)],
        capture_output=True,
        text=True,
        check=False,
    )
    found = json.loads(done.stdout)["generalDiagnostics"]
    assert [f"{one['file']}: {one['message']}" for one in found if one["severity"] == "error"] == []
