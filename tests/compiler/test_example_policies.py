"""Each of the twelve example policies needs a later step of the language: which parts of it?

`POLICYGUARD_EXAMPLES` is the folder that they stand in. When a step comes to life, this list
shrinks; when none is left, the policies must load.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from policyguard.compiler import check_policy
from policyguard.compiler.frontend import read_policy
from policyguard.compiler.load.layer_validation import find_unsupported
from policyguard.engines.yaml_source import parse

PROJECT = Path(__file__).parents[2]
DEFAULT = PROJECT.parent / "shared" / "example-policies"
FOLDER = Path(os.environ.get("POLICYGUARD_EXAMPLES", DEFAULT))
PINNED = Path(__file__).parents[1] / "cases" / "not_alive.txt"

pytestmark = pytest.mark.skipif(
    not FOLDER.is_dir(), reason=f"no example policies in {FOLDER} (POLICYGUARD_EXAMPLES)"
)


def pinned() -> dict[str, list[str]]:
    """By policy, the paths of its parts that are not alive."""
    found: dict[str, list[str]] = {}
    for line in PINNED.read_text("utf-8").splitlines():
        policy, _, path = line.partition(": ")
        found.setdefault(policy, []).append(path)
    return found


ALIVE = sorted(path.stem for path in FOLDER.glob("*.yaml") if path.stem not in pinned())


def test_every_pinned_policy_is_there():
    assert {path.stem for path in FOLDER.glob("*.yaml")} >= pinned().keys()


@pytest.mark.parametrize("name", ALIVE)
def test_a_policy_that_is_all_alive_compiles(name):
    compiled, diagnostics = check_policy(FOLDER / f"{name}.yaml", environ={})
    assert not [found for found in diagnostics if found.severity == "error"]
    assert compiled is not None


@pytest.mark.parametrize("name", sorted(pinned()))
def test_every_part_that_is_not_alive_is_named(name):
    file = FOLDER / f"{name}.yaml"
    parsed = parse(file.read_bytes(), str(file))
    parts = list(find_unsupported(parsed.root))
    assert [".".join(map(str, path)) for path, _ in parts] == pinned()[name]

    made = read_policy(file, environ={})
    here = [found for found in made.diagnostics if found.span.file == str(file)]
    refused = [found for found in here if found.code == "schema/unsupported"]
    assert refused == [found for _, found in parts]
    # Nothing else is wrong with it, but that the pack which it extends may not exist yet.
    assert {found.code for found in here} - {"schema/unsupported"} <= {"load/not-found"}
