"""The twelve example policies load, and their stories pass.

`POLICYGUARD_EXAMPLES` is the folder that they stand in.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from click.testing import CliRunner

from policyguard.cli import main
from policyguard.compiler import check_policy
from tests.examples import some

PROJECT = Path(__file__).parents[2]
DEFAULT = PROJECT.parent / "shared" / "example-policies"
FOLDER = Path(os.environ.get("POLICYGUARD_EXAMPLES", DEFAULT))

pytestmark = pytest.mark.skipif(
    not FOLDER.is_dir(), reason=f"no example policies in {FOLDER} (POLICYGUARD_EXAMPLES)"
)


@pytest.mark.parametrize("name", some(sorted(path.stem for path in FOLDER.glob("*.yaml")), 4))
def test_the_policy_compiles(name):
    compiled, diagnostics = check_policy(FOLDER / f"{name}.yaml", environ={})
    assert not [found for found in diagnostics if found.severity == "error"]
    assert compiled is not None


def test_the_stories_pass():
    files = some(sorted((FOLDER / "tests").glob("*.tests.yaml")), 4)
    result = CliRunner().invoke(main, ["test", *map(str, files)])
    assert result.exit_code == 0, result.output
