"""The TypeScript client: its types are those of the service, and its tests pass with a real one."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from policyguard.adapters.service.openapi import describe_api

CLIENT = Path(__file__).parents[2] / "clients" / "typescript"
KEPT = ("src", "examples", "test", "package.json", "tsconfig.json", "generate.mjs")


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a copy of the client with what it is built with."""
    npm = shutil.which("npm")
    if npm is None:
        pytest.skip("npm is not installed")
    folder = tmp_path_factory.mktemp("typescript")
    for name in KEPT:
        source = CLIENT / name
        (shutil.copytree if source.is_dir() else shutil.copy)(source, folder / name)
    options = ("--no-audit", "--no-fund", "--no-package-lock")
    done = subprocess.run(
        [npm, "install", *options], cwd=folder, capture_output=True, text=True, check=False
    )
    if done.returncode:
        pytest.skip(f"npm cannot install: {done.stderr[-300:]}")
    return folder


def test_every_type_of_the_service_is_there() -> None:
    """Without Node: names alone."""
    types = (CLIENT / "src" / "api.ts").read_text()
    for name in describe_api()["components"]["schemas"]:
        assert f"export type {name} = components['schemas']['{name}'];" in types


@pytest.mark.slow
def test_the_types_are_those_of_the_service(project: Path) -> None:
    described = json.dumps(describe_api())
    subprocess.run(
        ["node", "generate.mjs", "made.ts"], cwd=project, input=described, text=True, check=True
    )
    assert (project / "made.ts").read_text() == (project / "src" / "api.ts").read_text()


@pytest.mark.slow
def test_the_client_with_a_service(project: Path) -> None:
    program = Path(sys.executable).with_name("policyguard")
    done = subprocess.run(
        ["npm", "test"],
        cwd=project,
        env={**os.environ, "POLICYGUARD": str(program)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-5000:] + done.stderr[-2000:]
    assert "# fail 0" in done.stdout
