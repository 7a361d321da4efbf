"""The parts of the twelve example policies that are not implemented yet.

`POLICYGUARD_EXAMPLES` is the folder that they stand in. When a step comes to life, this list
shrinks; when none is left, the policies must load.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from policyguard.compiler import check_policy
from policyguard.compiler.load.layer_validation import find_unsupported
from policyguard.engines.yaml_source import parse
from tests.compiler.setup import read_files

PROJECT = Path(__file__).parents[2]
DEFAULT = PROJECT.parent / "shared" / "example-policies"
FOLDER = Path(os.environ.get("POLICYGUARD_EXAMPLES", DEFAULT))
PINNED = Path(__file__).parents[1] / "cases" / "unsupported.txt"

pytestmark = pytest.mark.skipif(
    not FOLDER.is_dir(), reason=f"no example policies in {FOLDER} (POLICYGUARD_EXAMPLES)"
)


def pinned() -> dict[str, list[str]]:
    """Return the paths of unsupported keys by policy."""
    found: dict[str, list[str]] = {}
    for line in PINNED.read_text("utf-8").splitlines():
        policy, _, path = line.partition(": ")
        found.setdefault(policy, []).append(path)
    return found


ALIVE = sorted(path.stem for path in FOLDER.glob("*.yaml") if path.stem not in pinned())


def test_pinned_policies_exist():
    assert {path.stem for path in FOLDER.glob("*.yaml")} >= pinned().keys()


@pytest.mark.parametrize("name", ALIVE)
def test_fully_supported_policy_compiles(name):
    compiled, diagnostics = check_policy(FOLDER / f"{name}.yaml", environ={})
    assert not [found for found in diagnostics if found.severity == "error"]
    assert compiled is not None


@pytest.mark.parametrize("name", sorted(pinned()))
def test_every_unsupported_key_is_reported(name):
    file = FOLDER / f"{name}.yaml"
    parsed = parse(file.read_bytes(), str(file))
    parts = list(find_unsupported(parsed.root))
    assert [".".join(map(str, path)) for path, _ in parts] == pinned()[name]

    result = read_files(file)
    here = [found for found in result.diagnostics if found.span.file == str(file)]
    refused = [found for found in here if found.code == "schema/unsupported"]
    assert refused == [found for _, found in parts]
    # Nothing else is wrong, except that the pack it extends may not exist yet.
    other = {found.code for found in here if found.severity == "error"} - {"schema/unsupported"}
    assert other <= {"load/not-found"}
