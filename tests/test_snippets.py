"""Type checkers accept the Python code of the documents."""

from __future__ import annotations

import ast
import builtins
import json
import os
import re
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
KNOWN_TYPES = {"guard": "policyguard.Guard", "session": "policyguard.Session"}
"""Names defined by earlier blocks; all other undefined names may be anything."""


def to_module(document: Path) -> str:
    """Return a module with a function for each block of a document."""
    exported = ", ".join(policyguard.__all__)
    lines = ["from typing import Any", "import policyguard", f"from policyguard import {exported}"]
    undefined: dict[str, str] = {}
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
        undefined |= {name: KNOWN_TYPES.get(name, "Any") for name in names if name not in known}
        functions.append(f"async def block_{number}() -> None:\n{textwrap.indent(block, '    ')}")
    lines += [f"{name}: {type_}" for name, type_ in sorted(undefined.items())]
    return "\n".join([*lines, "", "", *functions])


@pytest.fixture(scope="module")
def snippet_modules(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    folder = tmp_path_factory.mktemp("snippets")
    files = []
    for document in DOCUMENTS:
        name = re.sub(r"\W", "_", str(document.relative_to(ROOT).with_suffix("")))
        files.append(folder / f"snippets_{name}.py")
        files[-1].write_text(to_module(document))
    return files


@pytest.mark.slow
def test_mypy_accepts_the_documents(snippet_modules: list[Path]) -> None:
    pytest.importorskip("mypy")
    options = ["--strict", "--disable-error-code=empty-body", "--no-error-summary"]
    result = subprocess.run(
        [sys.executable, "-m", "mypy", *options, *map(str, snippet_modules)],
        cwd=ROOT,
        env={**os.environ, "MYPYPATH": str(ROOT)},
        capture_output=True,
        text=True,
    )
    assert result.stdout + result.stderr == ""


def test_pyright_accepts_the_documents(snippet_modules: list[Path]) -> None:
    pyright = Path(sys.executable).with_name("basedpyright")
    folder = snippet_modules[0].parent
    settings = {
        "typeCheckingMode": "standard",
        "extraPaths": [str(ROOT)],
        "pythonVersion": "3.11",
        "reportReturnType": False,  # some functions have no body
        "reportMissingImports": False,  # frameworks are not installed here; mypy knows which
    }
    (folder / "pyrightconfig.json").write_text(json.dumps(settings))
    result = subprocess.run(
        [pyright, "--outputjson", "--pythonpath", sys.executable, "--project", str(folder)],
        capture_output=True,
        text=True,
        check=False,
    )
    diagnostics = json.loads(result.stdout)["generalDiagnostics"]
    assert [
        f"{diagnostic['file']}: {diagnostic['message']}"
        for diagnostic in diagnostics
        if diagnostic["severity"] == "error"
    ] == []
